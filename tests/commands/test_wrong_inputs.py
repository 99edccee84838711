"""Wrong inputs over each face: the answer names the value, and what is allowed or what to do.

The command line, Config.json, the control API and the page; each row has words of the answer: the value as it was
given, then the remedy. Values of operations that several faces offer are in `tests/operations`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from emubus.testing import EmubusServer

from ..http.control.client import Http
from .conftest import CommandLine

SPAN = "allowed is 500ms, 30s, 5m, 1h, 2d or PT30S"
NUMBER = "allowed is a whole number"
PORT = "allowed is 0 to 65535 (0 for a free port)"
LS = "`emubus ls` lists the entities"

START = [
    ("serve --amqp-port x", "--amqp-port is 'x'", PORT),
    ("serve --amqp-port 70000", "'70000'", PORT),
    ("serve --http-port -1", "'-1'", PORT),
    ("serve --profile premum", "'premum'", "did you mean premium?"),
    ("serve --durability ful", "'ful'", "did you mean full?"),
    ("serve --log-level loud", "'loud'", "allowed is debug, info, warning, error"),
    ("serve --log-format xml", "'xml'", "allowed is console, json"),
    ("serve --auth sass", "'sass'", "did you mean sas?"),
    ("serve --tls on", "'on'", "allowed is off, dev"),
    ("serve --tls-cert no.pem", "--tls-cert is no.pem", "give --tls-key, too"),
    ("serve --tls-key no.pem", "--tls-key is no.pem", "give --tls-cert, too"),
    ("serve --tls-cert {file} --tls-key {file}", "{file}", "a certificate and its key in PEM, without a password"),
    ("serve --http-port 0 --amqp-port 0 --conditions throtled", "'throtled'", "did you mean throttled?"),
    ("serve --http-port 0 --amqp-port 0 --conditions throttled=x", "'throttled=x'", "did you mean throttled?"),
    ("serve --config missing.json", "missing.json", "No such file or directory"),
    (
        "serve --config {folder}",
        "{folder}",
        "Is a directory; Docker makes one where the file of a bind mount is missing",
    ),
    ("serve --premium-partitions 3", "'3'", "allowed is none, 1, 2, 4"),
    ("serve --no-such", "--no-such", "did you mean --no-story?"),
    ("serve --amqp-prt 1", "--amqp-prt", "did you mean --amqp-port?"),
    ("serve extra", "'extra'", "takes (see emubus serve --help)"),
    ("serve --fresh=1", "--fresh takes no value", "see emubus serve --help"),
    ("serve --queues a?b", "'b'", "allowed is sessions, partitioned, duplicates"),
    ("serve --ready-file {folder}", "{folder}", "is a folder; name a file in it"),
    ("serve --ready-file {folder}/no/x", "{folder}/no/x", "there is no folder {folder}/no; make it first"),
    ("serve --config {empty}", "--config is ''", "allowed is a non-empty path"),
    ("serve --data {empty}", "--data is ''", "allowed is a non-empty path"),
    ("serve --queues {empty}", "--queues is ''", "allowed is a non-empty text"),
    ("serve --queues a,b,A", "'A' twice", "name it once, with all its flags"),
    ("serve --tls-port 5672", "--amqp-port and --tls-port are 5672", "give each a port of its own"),
    ("config check {empty}", "FILE is ''", "allowed is a non-empty path"),
    ("check {empty}", "DIR is ''", "allowed is a non-empty path"),
    ("serv", "'serv'", "did you mean serve?"),
    ("--verison", "--verison", "did you mean --version?"),
    ("config", "ACTION is missing", "check, export, schema"),
    ("config chek f", "'chek'", "did you mean check?"),
    ("config check", "FILE is missing", "the Config.json"),
    ("check", "DIR is missing", "the data folder"),
    ("ca --fingerprint AB", "--fingerprint", "goes with --install"),
    ("token --life 0s", "--life is 0ms", "allowed is 1ms to"),
]
CLIENT = [
    ("send order x", "'order'", "did you mean 'orders'?"),
    ("send orders x --ttl soon", "'soon'", SPAN),
    ("send orders x --property a", "'a'", "allowed is NAME=VALUE"),
    ("send orders x --count 0", "'0'", f"{NUMBER} of 1 or more"),
    ("send orders x --count x", "--count is 'x'", f"{NUMBER} of 1 or more"),
    ("peek orders --count -1", "'-1'", f"{NUMBER} of 1 or more"),
    ("peek orders --from x", "'x'", NUMBER),
    ("peek news", "'news' is a topic", "peek news/NAME"),
    ("receive orders --deferred 1,x", "'1,x'", "allowed are whole numbers, separated by commas"),
    ("receive orders --count 0", "'0'", f"{NUMBER} of 1 or more"),
    ("resubmit orders x", "NUMBER is 'x'", NUMBER),
    ("purge none --yes", "'none'", LS),
    ("delete none --yes", "'none'", LS),
    ("show none", "'none'", LS),
    ("route none", "'none'", LS),
    ("outage begin 99", "KIND is '99'", "a KIND of down, slow, failing, full"),
    ("outage begin down x", "'x'", "number of a messaging store"),
    ("outage begin down 99", "STORE is 99", "this server has the stores 0 to 15"),
    ("outage begin down 1 --for soon", "'soon'", SPAN),
    ("outage end x", "'x'", "allowed is the number of a messaging store, from 0"),
    ("fault begin busy", "'busy'", "a KIND of server-busy, dropped-link"),
    ("fault begin server-busy --count 0", "'0'", f"{NUMBER} of 1 or more"),
    ("fault begin server-busy --probability 2", "'2'", "allowed is a number that is more than 0 and at most 1"),
    ("clock advance soon", "'soon'", SPAN),
    ("clock advance", "`emubus clock advance` needs", "a SPAN such as 5m"),
    ("clock freze", "'freze'", "did you mean freeze?"),
    ("condition begin throtled", "'throtled'", "did you mean throttled?"),
    ("condition begin throttled --set x=1", "'x=1'", "throttled has throttle-credits.credits_per_s"),
    ("condition begin throttled --seed x", "'x'", NUMBER),
    ("condition end 9", "No condition 9 is on", "On are: none"),
    ("snapshot take a/b", "'a/b'", "Choose another, such as 'before-release'"),
    ("snapshot restore none --yes", "'none'", "there are: none"),
    ("job delet orders", "'delet'", "did you mean delete?"),
    ("job delete orders", "say which messages", "NUMBERs, a filter such as --where, or --all"),
    ("job delete orders --where a=", "SQL filter: unexpected the end", "expected a value (line 1, column 3)"),
    ("sessions orders", "'orders'", "create it anew with RequiresSession"),
    ("connections --drop --number 999 --yes", "There is no connection 999", "There are none"),
    ("create subscription none/mine", "'none'", LS),
    ("create subscription new/mine", "'new'", "did you mean 'news'?"),
    ("create queue q --set LockDuration=10min", "00:10:00", "a span is written as 500ms, 30s, 5m, 1h"),
    ("create queue q --set LockDurtion=30s", "'LockDurtion'", "did you mean LockDuration"),
    ("rules orders", "'orders'", "it is not a subscription (topic/name)"),
    ("find", "say what to look for", "TEXT, --where SQL, or both"),
    ("refusals --count x", "'x'", NUMBER),
    ("health --timeout x", "'x'", "allowed is 0 to 86400"),
    ("ls --url ftp://x", "'ftp://x'", "allowed is http://HOST:PORT or https://HOST:PORT"),
    ("ls --url http://x:99999", "--url is 'http://x:99999'", "allowed is a port from 0 to 65535"),
    # words that would be heeded nowhere
    ("receive orders --reason r", "--reason", "give it with --then dead-letter"),
    ("settle orders complete {token} --description d", "--description", "give it with the OUTCOME dead-letter"),
    ("job delete orders --all --reason r", "--reason", "is for dead-letter, not for delete"),
    ("job delete orders --all --to parts", "--to", "is for resubmit, move, copy, not for delete"),
    ("outage begin down 1 --delay 1s", "--delay", "for an outage that is slow, not for down"),
    ("outage list --for 1s", "--for", "goes with begin, not with list"),
    ("fault list server-busy", "`emubus fault list`", "it lists all"),
    ("fault end 1 --count 2", "--count", "goes with begin, not with end"),
    ("fault begin server-busy --delay 1s", "--delay", "is for delayed-confirmation, not for server-busy"),
    ("connections --number 1", "--number is 1", "goes with --drop"),
    ("trace --on --follow", "--on", "give it alone"),
    ("trace --number 3", "--number is 3", "give --entity, too"),
    ("purge orders --all", "--all and orders", "exclude each other"),
    ("import --arm {empty}", "--arm is ''", "allowed is a non-empty path"),
    ("send orders --file {empty}", "--file is ''", "allowed is a non-empty path"),
    ("clock advance -5m", "'-5…'", "no value here is negative"),
    ("resubmit orders -1", "'-1…'", "no value here is negative"),
    ("outage begin down -1", "'-1…'", "no value here is negative"),
    ("send orders x --ttl -5s", "'-5s'", SPAN),
    ("send orders x --property =v", "'=v'", "allowed is NAME=VALUE"),
    ("send orders x --count 99999999999", "--count is 99999999999", "allowed are 1000000 messages"),
    ("send orders x --partition-key {long}", "--partition-key has 300", "must have 0 to 128"),
    ("send orders x --session-id {long}", "--session-id has 300", "must have 0 to 128"),
    ("send orders x --message-id {long}", "--message-id has 300", "must have 0 to 128"),
    ("peek carts --session {long}", "--session has 300", "must have 0 to 128"),
    ("peek orders --sub-queue dead", "'dead'", "none of active, dead-letter"),
    ("peek orders --from -1", "--from is -1", "at least 0"),
    ("receive orders --then drop", "'drop'", "none of complete, abandon"),
    ("settle orders complete notatoken", "'notatoken'", "a lock token, from receive --then lock"),
    ("settle orders completed {token}", "'completed'", "did you mean complete?"),
    ("update orders --set MaxDeliveryCount=x", '"x"', "it must be a whole number"),
    ("update orders --set Status=Off", '"Off"', "allowed is Active, Disabled"),
    ("update orders --set Name=other", "'Name'", "it has Status, EnablePartitioning"),
    ("update orders --set =x", "'=x'", "allowed is NAME=VALUE"),
    ("update orders --set ForwardTo=nowhere", "'nowhere'", "does not exist"),
    ("update orders --set DefaultMessageTimeToLive=-1", "'-1'", "PT30S or never"),
    ("create queue q --set EnablePartitioning=maybe", '"maybe"', "it must be true or false"),
    ("create topic t --set LockDuration=PT30S", "'LockDuration'", "it has "),
    ("rules news/all --add r --equal a", "--equal is 'a'", "allowed is NAME=VALUE"),
    ("rules news/all --add r --sql a=1 --equal b=2", "--sql or --equal", "not both"),
    ("job delete orders --all --state dead", "'dead'", "none of active, deferred"),
    ("job resubmit orders --all --count 0", "'0'", f"{NUMBER} of 1 or more"),
    ("clock advance 999999999d", "999999999d", "at most 3660d"),
    ("outage begin down 1 --for 0s", "--for is 0ms", "at least 1ms"),
    ("fault begin server-busy --operation snd", "'snd'", "allowed: attach, send"),
    ("condition begin throttled --set credits_per_s=x", "'x'", "it must be a whole number or null"),
    ("condition begin throttled --set credits_per_s=-1", "-1", "it must be at least 0"),
    ("condition end x", "'x'", "on are: none"),
    ("snapshot list x", "'x'", "takes none, it lists all"),
    ("reset --to nowhere", "'nowhere'", "none of start, config, empty"),
    ("exercise --minutes 0", "'0'", "allowed is 0.001 to 10000"),
    ("token --life 9999999d", "9999999d", "allowed is 1ms to 36500d"),
    ("role assign x y", "'y' is no role", "sender (Azure Service Bus Data Sender)"),
    ("role assign app owner nowhere", "'nowhere'", "create it first"),
    ("namespace create n --profile prem", "'prem'", "did you mean premium?"),
    ("import orders --lines none.json", "none.json", "No such file or directory"),
    ("import --namespace nonsense", "--namespace is (not shown)", "allowed is Endpoint=sb://HOST"),
    ("completion powershell", "'powershell'", "none of bash, zsh, fish"),
    ("peek orders carts", "'carts'", "takes (see emubus peek --help)"),
    ("job delete orders --where {empty}", "--where is ''", "allowed is a non-empty text"),
    ("job delete orders --text {empty}", "--text is empty", "allowed is a non-empty text"),
    ("export orders --where {empty}", "--where is ''", "allowed is a non-empty text"),
    ("find {empty}", "TEXT is empty", "allowed is a non-empty text"),
    ("rules news/all --action {empty}", "--action is ''", "allowed is a non-empty text"),
    ("connections --drop --entity {empty} --yes", "--entity is ''", "allowed is a non-empty text"),
    ("condition begin throttled --entity {empty}", "--entity is ''", "allowed is a non-empty text"),
    ("connection-string --entity {empty}", "--entity is ''", "allowed is a non-empty text"),
    ("token {empty}", "ENTITY is ''", "allowed is a non-empty text"),
    ("refusals {empty}", "ENTITY is ''", "allowed is a non-empty text"),
    ("purge {empty} --yes", "ENTITY is ''", "allowed is a non-empty text"),
    ("delete {empty} --yes", "ENTITY is ''", "allowed is a non-empty text"),
    ("trace {empty}", "MESSAGE-ID is ''", "allowed is a non-empty text"),
    ("namespace create n --port {empty}", "--port is ''", "allowed is a non-empty text"),
    ("ls --url {empty}", "--url is ''", "allowed is http://HOST:PORT"),
    ("purge --all --yes --connection-string {empty}", "--connection-string is (not shown)", "allowed is"),
    ("ls --ca {empty}", "--ca is ''", "allowed is a non-empty path"),
    # what is meant is another place than what would be struck
    ("purge orders/$DeadLetterQueue", "'orders/$DeadLetterQueue'", "such as --dead-letters"),
    ("delete orders/$deadletterqueue", "'orders/$deadletterqueue'", "a part of 'orders'"),
    ("receive orders/$DeadLetterQueue", "'orders/$DeadLetterQueue'", "such as --dead-letters"),
    ("show orders/$management", "'orders/$management'", "a part of 'orders'"),
    ("purge --all --namespace none", "'none'", "`emubus namespace` lists"),
    ("receive orders --session s", "'orders'", "create it anew with RequiresSession"),
    ("receive carts --session s --dead-letters", "Sub-queues", "without session_id (--session)"),
    ("receive news", "'news'", "its subscriptions do, such as news/NAME"),
    ("settle news complete {token}", "'news'", "its subscriptions do, such as news/NAME"),
    ("resubmit news", "'news'", "its subscriptions do, such as news/NAME"),
    ("job delete news --all", "'news'", "its subscriptions do"),
    ("job move orders --all", "'orders'", "--to is missing"),
    ("send news/all x", "'news/Subscriptions/all'", "send to the topic 'news'"),
    ("create subscription orders/s", "'orders' is a queue", "below a topic"),
    ("create queue orders", ":orders' already exists", "; `emubus update orders --set NAME=VALUE` changes it"),
    ("create subscription news/all", "already exists", "`emubus update news/all --set NAME=VALUE` changes it"),
    ("job copy orders --all --to prts", "'prts'", "did you mean 'parts'?"),
    ("fault begin server-busy --entity ordrs", "'ordrs'", "did you mean 'orders'?"),
    ("exercise --entity ordrs", "'ordrs'", "did you mean 'orders'?"),
    ("exercise --presets throtled", "'throtled'", "did you mean throttled?"),
    ("peek news/al", "'news/al'", "did you mean 'news/all'?"),
    ("peek nws/all", "'nws/all'", "did you mean 'news/all'?"),
    ("sessions carts --release none", "'none'", "locked are: none"),
    ("rules news/all --remove none", "'none'", "there are: $Default"),
    ("rules news/all --add {empty}", "--add is ''", "allowed is a non-empty text"),
    ("rules news/all --add r --sql {empty}", "--sql is ''", "allowed is a non-empty text"),
    ("create queue {empty}", "PATH is empty", "allowed is a non-empty text"),
    ("create topic t --sessions", "--sessions", "for a queue or a subscription, not for a topic"),
    ("create subscription news/s --partitioned", "--partitioned", "for a queue or a topic, not for a subscription"),
    ("condition end throttled", "'throttled'", "on are: none"),
    ("condition names throtled", "'throtled'", "did you mean throttled?"),
    ("outage begin", "KIND is missing", "down, slow, failing, full"),
    ("outage begin dwn 1", "'dwn'", "did you mean down?"),
    # figures in the words of the command line
    ("send orders x --ttl 0s", "--ttl is 0ms", "at least 1ms"),
    ("send orders x --delay 999999d", "--delay is 999999d", "at most 366d"),
    ("send orders x --count 2000000", "--count is 2000000", "allowed are 1000000"),
    ("receive orders --wait 2h", "--wait is 2h", "allowed is 1m at most"),
    ("clock advance 999999d", "SPAN is 999999d", "at most 3660d"),
    ("outage begin down 1 --for 99999d", "--for is 99999d", "at most 366d"),
    ("fault begin server-busy --probability nan", "'nan'", "more than 0 and at most 1"),
    ("create queue q --set MaxDeliveryCount=0", "MaxDeliveryCount is 0", "at least 1"),
    ("create queue q --set LockDuration=never", "LockDuration is", "a span is written as"),
]
QUEUES = [
    ("{}", "Queues[0] has no Name", "it is required"),
    ('{"Name": ""}', "''", "allowed is 1 to 260 characters"),
    ('{"Name": "a//b"}', "'a//b'", "allowed is a path without empty segments"),
    ('{"Nme": "q"}', "Nme", "did you mean Name?"),
    ('"q"', '"q"', "it must be an object"),
    ('{"Name": "q"}, {"Name": "q"}', '"q"', "line 1 has another queue or topic of that name"),
    ('{"Name": "q", "Properties": {"LockDuration": "1h"}}', "'1h'", "such as 'PT1M'"),
    ('{"Name": "q", "Properties": {"LockDuration": "PT1H"}}', "PT1H", "allowed is PT5S to PT5M"),
    ('{"Name": "q", "Properties": {"LockDuration": 30}}', "30", "it must be an ISO 8601 duration"),
    ('{"Name": "q", "Properties": {"MaxDeliveryCount": 0}}', "0", "allowed is 1 to 2147483647"),
    ('{"Name": "q", "Properties": {"MaxDeliveryCount": "ten"}}', '"ten"', "it must be a whole number"),
    ('{"Name": "q", "Properties": {"RequiresSession": "yes"}}', '"yes"', "it must be true or false"),
    ('{"Name": "q", "Properties": {"ForwardTo": "nowhere"}}', '"nowhere"', "there is no queue or topic of that name"),
    ('{"Name": "q", "Properties": {"ForwardTo": "q"}}', "'q'", "allowed is another entity than this one"),
    ('{"Name": "q", "Properties": {"LockDurtion": "PT1M"}}', "LockDurtion", "did you mean LockDuration?"),
]
API = [
    ("GET", "/nothing", None, "no such endpoint", "see /emubus/v1/openapi.json"),
    ("GET", "/entities?count=0", None, "count is 0", "at least 1 and at most 1000"),
    ("GET", "/entities?cuont=1", None, "'cuont'", "there are: count, page"),
    ("GET", "/entities/orders/messages?sub_queue=dead", None, "'dead'", "allowed: active, dead-letter"),
    ("GET", "/samples?span=1w", None, "'1w'", "allowed: 5m, 1h, 1d"),
    ("GET", "/report?since=x", None, "'x'", "it must be a whole number"),
    ("POST", "/reset", {"to": "begin"}, "'begin'", "allowed: empty, config, start"),
    ("POST", "/clock/advance", {"ms": -1}, "-1", "it must be at least 0"),
    ("POST", "/outages", {"stores": [99], "kind": "down"}, "body.stores[0] is 99", "at most 63"),
    ("POST", "/outages", {"stores": [1], "kind": "dwn"}, "'dwn'", "allowed: down, slow, failing, full"),
    ("POST", "/faults", {"kind": "server-busy", "operations": ["snd"]}, "'snd'", "allowed: attach, send"),
    ("POST", "/conditions", {"name": "throtled"}, "'throtled'", "allowed: throttled"),
    ("POST", "/conditions", {"name": "throttled", "set": {"x": 1}}, "'x'", "it has throttle-credits.credits_per_s"),
    ("PUT", "/entities/x", {"kind": "que"}, "'que'", "allowed: queue, topic, subscription"),
    ("POST", "/entities/orders/messages", {"messages": [{"body": 1}]}, "body is 1", "it must be a string"),
    ("POST", "/snapshots/none/restore", None, "'none'", "there are: none"),
    ("GET", "/entities/orders/sessions", None, "'orders'", "create it anew with RequiresSession"),
    ("DELETE", "/reset", None, "DELETE", "allowed: POST"),
    ("POST", "/entities/orders%2F$DeadLetterQueue/purge", None, "'orders/$DeadLetterQueue'", "sub_queue 'dead-letter'"),
    ("DELETE", "/entities/orders%2F$DeadLetterQueue", None, "'orders/$DeadLetterQueue'", "a part of 'orders'"),
    ("POST", "/entities/orders/receive", {"session_id": "s"}, "'orders'", "create it anew with RequiresSession"),
    ("POST", "/entities/news/receive", {}, "'news'", "its subscriptions do"),
    ("POST", "/entities/news/resubmit", {}, "'news'", "its subscriptions do"),
    *(
        ("POST", "/jobs", {"verb": "delete", "entity": "orders", "filter": {name: ""}}, f"body.filter.{name}", "1 to")
        for name in ("where", "text")
    ),
    ("POST", "/jobs", {"verb": "delete", "entity": "news", "filter": {}}, "'news'", "its subscriptions do"),
]
PAGE = [
    ("entity?path=orders/$DeadLetterQueue", None, "'orders/$DeadLetterQueue'", "a part of 'orders'"),
    ("purge", {"path": "orders/$DeadLetterQueue"}, "'orders/$DeadLetterQueue'", "a part of 'orders'"),
    ("entity?path=ordes", None, "ordes", "Did you mean 'orders'?"),
    ("messages?path=orders&queue=dead", None, "'dead'", "none of active, dead-letter"),
    ("messages?path=orders&partition=9", None, "'9'", "a whole number from 0 to 0"),
    ("messages?path=orders&where=a+%3D", None, "SQL filter: unexpected the end", "expected a value"),
    ("messages?path=orders&after=yesterday", None, "'yesterday'", "such as 2030-01-01T12:00"),
    ("charts?span=1w", None, "'1w'", "none of 5m, 1h, 1d"),
    ("mesages?path=orders", None, "'/emubus/page/mesages'", "Back to the entities"),
    ("create", {"kind": "queue", "name": "a//b"}, "'a//b'", "allowed is a path without empty segments"),
    ("send", {"path": "orders", "body": "x", "ttl": "soon"}, "'soon'", "such as 30s, 5m, 2h, 14d or PT1M"),
    ("send", {"path": "orders", "body": "x", "count": "0"}, "'0'", "a whole number from 1 to 10000"),
    ("begin-failure", {"what": "condition", "name": "throttled", "for": "soon"}, "'soon'", "such as 30s, 5m"),
    ("clock", {"do": "advance", "by": "soon"}, "'soon'", "such as 30s, 5m, 2h, 14d or PT1M"),
]
NOTHING = "declares nothing of Service Bus"
TEMPLATE = "give a template with resources of Microsoft.ServiceBus"
SHOWN = "give what `terraform show -json` prints"
PLAN = '{"format_version": "1.2", "planned_values": {"root_module": {"resources": [%s]}}}'
FILES = [
    ("arm", "a.json", "{}", NOTHING, TEMPLATE),
    ("arm", "a.json", '{"resources": []}', NOTHING, TEMPLATE),
    ("arm", "a.json", '{"resources": [{"type": "Microsoft.Cache/redis", "name": "x"}]}', "Cache/redis", TEMPLATE),
    ("arm", "a.json", "[]", "is not a JSON object", TEMPLATE),
    ("arm", "a.json", "", "is not JSON", TEMPLATE),
    ("arm", "appsettings.json", '{"ConnectionStrings": {}}', NOTHING, TEMPLATE),
    ("arm", "Config.json", '{"UserConfig": {}}', NOTHING, "start with `emubus serve --config"),
    ("arm", "p.json", '{"$schema": "x/deploymentParameters.json#"}', NOTHING, "give it as --parameters"),
    ("arm", "plan.json", PLAN % "", NOTHING, "give it as --terraform"),
    ("arm", "stack.json", '{"version": 3, "deployment": {}}', NOTHING, "give it as --pulumi"),
    ("arm", "a.tfstate", '{"terraform_version": "1.5", "resources": []}', NOTHING, SHOWN),
    ("arm", "main.tf", "resource {", "is not JSON", SHOWN),
    ("terraform", "plan.json", PLAN % "", NOTHING, SHOWN),
    ("terraform", "plan.json", PLAN % '{"type": "azurerm_redis_cache", "name": "x"}', "azurerm_redis_cache", SHOWN),
    ("terraform", "state.json", '{"format_version": "1.0"}', NOTHING, SHOWN),
    ("terraform", "main.tf", "resource {", "is not JSON", SHOWN),
    ("terraform", "a.tfstate", '{"terraform_version": "1.5", "resources": []}', "it is a state file", SHOWN),
    ("terraform", "a.json", '{"contentVersion": "1.0.0.0", "resources": []}', "format_version", "give it as --arm"),
    ("terraform", "stack.json", '{"version": 3, "deployment": {}}', "format_version", "give it as --pulumi"),
    ("pulumi", "stack.json", '{"version": 3, "deployment": {}}', NOTHING, "`pulumi stack export`"),
    ("pulumi", "stack.json", '{"deployment": {"resources": [{"type": "aws:s3:Bucket"}]}}', "aws:s3:Bucket", "`pulumi"),
    ("pulumi", "plan.json", PLAN % "", "no deployment", "give it as --terraform"),
    ("pulumi", "Config.json", '{"UserConfig": {}}', "no deployment", "start with `emubus serve --config"),
    ("pulumi", "a.json", "null", "is not a JSON object", "`pulumi stack export`"),
]


def test_there_are_as_many_as_a_new_user_tried() -> None:
    assert len(START) + len(CLIENT) + len(QUEUES) >= 47 + 30
    assert len(START) + len(CLIENT) + len(QUEUES) + len(API) + len(PAGE) >= 94


@pytest.mark.parametrize(("words", "value", "remedy"), START, ids=[row[0] for row in START])
def test_a_start_names_the_value_and_what_is_allowed(
    offline: CommandLine, tmp_path: Path, words: str, value: str, remedy: str
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    places = {"file": str(file), "folder": str(tmp_path), "empty": ""}
    ended = offline(*(each.format(**places) if "{" in each else each for each in words.split()))
    one_line(ended.err, value.format(**places), remedy.format(**places))
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize(
    ("variable", "text", "remedy"),
    [
        ("EMUBUS_CONDITIONS", "throtled", "EMUBUS_CONDITIONS: There is no condition 'throtled'"),
        ("EMUBUS_READY_FILE", "{folder}", "EMUBUS_READY_FILE {folder} is a folder; name a file in it"),
        ("EMUBUS_HOST", "192.0.2.7", "EMUBUS_HOST 192.0.2.7 is no address of this machine"),
        ("EMUBUS_QUEUES", "a,a", "EMUBUS_QUEUES has the queue 'a' twice"),
        ("EMUBUS_CONFIG", "{folder}/none", "{folder}/none: cannot be read"),
    ],
)
def test_a_start_names_the_variable(
    offline: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, remedy: str
) -> None:
    monkeypatch.setenv(variable, text.format(folder=tmp_path))
    ended = offline("serve", "--durability", "none", "--http-port", "0", "--amqp-port", "0", "--data", str(tmp_path))
    one_line(ended.err, variable, remedy.format(folder=tmp_path))
    assert ended.code in (1, 2)


@pytest.mark.parametrize(("words", "value", "remedy"), CLIENT, ids=[row[0] for row in CLIENT])
def test_a_command_names_the_value_and_what_is_allowed(
    emubus: CommandLine, words: str, value: str, remedy: str
) -> None:
    places = {"empty": "", "long": "x" * 300, "token": "6e2b1f0c-3c2d-4b5a-9f00-0123456789ab"}
    ended = emubus(*(each.format(**places) for each in words.split()))
    one_line(ended.err, value, remedy)
    assert not re.search(r"\b(body|query)\.|\[Errno|Traceback", ended.err)
    assert ended.code in (1, 2)
    assert ended.out == ""


def one_line(said: str, value: str, remedy: str) -> None:
    assert value in said
    assert remedy in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(("queues", "value", "remedy"), QUEUES, ids=[row[0] for row in QUEUES])
def test_a_configuration_names_place_and_value_and_what_is_allowed(
    offline: CommandLine, tmp_path: Path, queues: str, value: str, remedy: str
) -> None:
    file = tmp_path / "Config.json"
    file.write_text(f'{{"UserConfig": {{"Namespaces": [{{"Name": "sbemulatorns", "Queues": [{queues}]}}]}}}}')
    said = offline("config", "check", str(file)).err
    assert said.startswith(f"{file}:1:")
    one_line(said, value, remedy)


@pytest.mark.parametrize(("option", "name", "text", "value", "remedy"), FILES, ids=[f"{r[0]} {r[2]}" for r in FILES])
def test_an_import_of_a_file_without_entities_says_what_the_file_is_or_should_be(
    offline: CommandLine, tmp_path: Path, option: str, name: str, text: str, value: str, remedy: str
) -> None:
    file, made = tmp_path / name, tmp_path / "made.json"
    file.write_text(text)
    ended = offline("import", f"--{option}", str(file), "--file", str(made))
    one_line(ended.err, value, remedy)
    assert str(file) in ended.err
    assert (ended.code, ended.out, made.exists()) == (2, "", False)


@pytest.mark.parametrize(("method", "path", "body", "value", "remedy"), API, ids=[f"{r[0]} {r[1]}" for r in API])
def test_the_control_api_names_the_value_and_what_is_allowed(
    server: EmubusServer, method: str, path: str, body: object, value: str, remedy: str
) -> None:
    answered = Http(server.http_port).ask(method, path, body)
    assert 400 <= answered.status < 500
    one_line(answered.json["detail"], value, remedy)


@pytest.mark.parametrize(("path", "fields", "value", "remedy"), PAGE, ids=[f"{row[0]} {row[2]}" for row in PAGE])
def test_the_page_names_the_value_and_what_is_allowed(
    server: EmubusServer, path: str, fields: Mapping[str, str] | None, value: str, remedy: str
) -> None:
    http = Http(server.http_port, {"Accept": "text/html", "Origin": f"http://127.0.0.1:{server.http_port}"})
    method, form = ("GET", None) if fields is None else ("POST", urlencode(fields).encode())
    answered = http.send(method, f"/emubus/page/{path}", form, Content_Type="application/x-www-form-urlencoded")
    assert 400 <= answered.status < 500
    said = re.sub(r"<[^>]*>", "", html.unescape(answered.content.decode()))
    assert value in said
    assert remedy in said
