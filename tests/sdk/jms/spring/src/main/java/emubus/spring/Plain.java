package emubus.spring;

import org.springframework.boot.autoconfigure.EnableAutoConfiguration;

/** An application that has nothing but what the starter makes. */
@EnableAutoConfiguration
class Plain {}
