package emubus.driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * One entity that a request names, and what the administration client can do with it. Properties have
 * the form of the driver protocol.
 */
interface AdministeredEntity {
    /** Creates it; returns what the SDK's create call returned. */
    ObjectNode create(JsonNode properties);

    ObjectNode get();

    /** Gets it, changes what the SDK gave and gives that back to the SDK. */
    void update(JsonNode properties);

    void delete();

    boolean exists();

    /** Returns counts, size and instants, as far as the SDK has them for this kind of entity. */
    ObjectNode runtime();
}
