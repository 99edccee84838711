"""Every function of templates that the documentation names, with its examples; a function without one fails.

Source: learn.microsoft.com/azure/azure-resource-manager/templates/template-functions and bicep/bicep-functions, and the
pages of each group: values are those of their examples where they have one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from emubus.templates.evaluating import CLOUD_FUNCTIONS, SPECIAL_NAMES, Place, Scope, Setting
from emubus.templates.functions import FUNCTIONS
from emubus.templates.values import Mixed, Unknown, Unresolved

DOCUMENTED = frozenset(
    {
        *("array", "concat", "contains", "createArray", "empty", "first", "flatten", "indexFromEnd", "indexOf"),
        *("intersection", "last", "lastIndexOf", "length", "max", "min", "range", "skip", "take", "tryGet"),
        *("tryIndexFromEnd", "union", "parseCidr", "cidrSubnet", "cidrHost", "coalesce", "equals", "greater"),
        *("greaterOrEquals", "less", "lessOrEquals", "dateTimeAdd", "dateTimeFromEpoch", "dateTimeToEpoch", "utcNow"),
        *("deployer", "deployment", "environment", "parameters", "variables", "filter", "groupBy", "map", "mapValues"),
        *("reduce", "sort", "toObject", "and", "bool", "false", "if", "not", "or", "true", "add", "copyIndex", "div"),
        *("float", "int", "mod", "mul", "sub", "createObject", "items", "json", "null", "objectKeys", "shallowMerge"),
        *("extensionResourceId", "managementGroupResourceId", "pickZones", "providers", "reference", "references"),
        *("resourceId", "subscriptionResourceId", "tenantResourceId", "managementGroup", "resourceGroup"),
        *("subscription", "tenant", "base64", "base64ToJson", "base64ToString", "buildUri", "dataUri"),
        *("dataUriToString", "endsWith", "format", "guid", "join", "newGuid", "padLeft", "parseUri", "replace"),
        *("split", "startsWith", "string", "substring", "toLower", "toUpper", "trim", "uniqueString", "uri"),
        *("uriComponent", "uriComponentToString", "any", "fail", "getSecret", "resourceInfo", "toLogicalZone"),
        *("toLogicalZones", "toPhysicalZone", "toPhysicalZones", "lambdaVariables", "externalInput"),
    }
)
PLACE = Place("sub", "group", "westeurope", "ten", "main", datetime(2019, 3, 5, 17, 53, 18, tzinfo=UTC), lambda: "guid")
DOGS = 'json(\'[{"name":"Evie","age":5},{"name":"Casper","age":3},{"name":"Indy","age":2},{"name":"Kira","age":8}]\')'


def _of_dog(member: str) -> str:
    return f"lambda('dog', lambdaVariables('dog').{member})"


EXAMPLES: tuple[tuple[str, object], ...] = (
    ("array(1)", [1]),
    ("array('efgh')", ["efgh"]),
    ("array(createArray(1))", [1]),
    ("concat('prefix-', '5yj4yjf5mbg72')", "prefix-5yj4yjf5mbg72"),
    ("concat(createArray('1-1'), createArray('2-1', '2-2'))", ["1-1", "2-1", "2-2"]),
    ("concat('a', 5, true())", "a5True"),
    ("contains('OneTwoThree', 'e')", True),
    ("contains('OneTwoThree', 'z')", False),
    ("contains(createObject('one', 'a'), 'ONE')", True),
    ("contains(createArray('one', 'two'), 'two')", True),
    ("contains(createArray('one', 'two'), 'Two')", False),
    ("contains(createArray(1), true())", False),
    ("createArray()", []),
    ("createArray('efgh', 1, null())", ["efgh", 1, None]),
    ("empty('')", True),
    ("empty(createArray())", True),
    ("empty(createObject())", True),
    ("empty(null())", True),
    ("empty('a')", False),
    ("first('One Two Three')", "O"),
    ("first(createArray('one', 'two'))", "one"),
    ("first(createArray())", None),
    ("flatten(createArray(createArray('one', 'two'), createArray('three')))", ["one", "two", "three"]),
    ("indexFromEnd(createArray(1, 2, 3), 1)", 3),
    ("tryIndexFromEnd(createArray(1, 2, 3), 4)", None),
    ("tryIndexFromEnd(createArray(1, 2, 3), 3)", 1),
    ("indexOf('test', 't')", 0),
    ("indexOf('abcdef', 'CD')", 2),
    ("indexOf('abcdef', 'z')", -1),
    ("indexOf(createArray('one', 'two'), 'two')", 1),
    ("lastIndexOf('test', 't')", 3),
    ("lastIndexOf('abcdef', 'AB')", 0),
    ("lastIndexOf(createArray('a', 'b', 'a'), 'a')", 2),
    ("lastIndexOf(createArray('a'), 'z')", -1),
    (
        'intersection(json(\'{"one": "a", "two": "b", "three": "c"}\'), '
        'json(\'{"one": "a", "two": "z", "three": "c"}\'))',
        {"one": "a", "three": "c"},
    ),
    ("intersection(createArray('one', 'two', 'three'), createArray('two', 'three'))", ["two", "three"]),
    ("last('One Two Three')", "e"),
    ("last(createArray('one', 'two'))", "two"),
    ("length('One Two Three')", 13),
    ("length(createArray('one', 'two', 'three'))", 3),
    ("length(createObject('a', 1, 'b', 2))", 2),
    ("max(createArray(0, 3, 2, 5, 4))", 5),
    ("max(0, 3, 2, 5, 4)", 5),
    ("min(createArray(0, 3, 2, 5, 4))", 0),
    ("min(0, 3, 2, 5, 4)", 0),
    ("range(5, 3)", [5, 6, 7]),
    ("skip(createArray('one', 'two', 'three'), 2)", ["three"]),
    ("skip('one two three', 4)", "two three"),
    ("skip('one', -1)", "one"),
    ("take(createArray('one', 'two', 'three'), 2)", ["one", "two"]),
    ("take('one two three', 2)", "on"),
    ("take('one', 50)", "one"),
    ("take('one', -1)", ""),
    ("tryGet(createObject('a', createObject('b', 1)), 'a', 'b')", 1),
    ("tryGet(createObject('a', 1), 'c', 'b')", None),
    ("tryGet(createArray(1), 5)", None),
    (
        'union(json(\'{"one": {"a": 1, "b": 2}}\'), json(\'{"one": {"b": 3}, "two": [1]}\'))',
        {"one": {"a": 1, "b": 3}, "two": [1]},
    ),
    (
        "union(createArray('one', 'two', 'three'), createArray('three', 'four'))",
        ["one", "two", "three", "four"],
    ),
    (
        "parseCidr('10.144.0.0/20')",
        {
            "network": "10.144.0.0",
            "netmask": "255.255.240.0",
            "broadcast": "10.144.15.255",
            "firstUsable": "10.144.0.1",
            "lastUsable": "10.144.15.254",
            "cidr": 20,
        },
    ),
    (
        "parseCidr('fdad:3236:5555::/48')",
        {
            "network": "fdad:3236:5555::",
            "netmask": "ffff:ffff:ffff::",
            "firstUsable": "fdad:3236:5555::",
            "lastUsable": "fdad:3236:5555:ffff:ffff:ffff:ffff:ffff",
            "cidr": 48,
        },
    ),
    ("cidrSubnet('10.144.0.0/20', 24, 4)", "10.144.4.0/24"),
    ("cidrSubnet('fdad:3236:5555::/48', 52, 1)", "fdad:3236:5555:1000::/52"),
    ("cidrHost('10.144.3.0/24', 0)", "10.144.3.1"),
    ("cidrHost('fdad:3236:5555:3000::/52', 4)", "fdad:3236:5555:3000::5"),
    ("coalesce(null(), null(), 'string')", "string"),
    ("coalesce(null())", None),
    ("equals(1, 1)", True),
    ("equals('a', 'A')", False),
    ("equals(createArray('a', 'b'), createArray('a', 'b'))", True),
    ("equals(1, true())", False),
    ("equals(null(), '')", False),
    ("greater(1, 2)", False),
    ("greater('A', 'a')", True),
    ("greaterOrEquals(2, 2)", True),
    ("greaterOrEquals('A', 'a')", True),
    ("less(1, 2)", True),
    ("less('A', 'a')", False),
    ("lessOrEquals('A', 'a')", False),
    ("lessOrEquals(1, 2)", True),
    ("dateTimeAdd('2020-04-07 14:53:14Z', 'P3Y')", "2023-04-07 14:53:14Z"),
    ("dateTimeAdd('2020-04-07 14:53:14Z', '-P9D')", "2020-03-29 14:53:14Z"),
    ("dateTimeAdd('2020-04-07T14:53:14Z', 'PT1H')", "2020-04-07T15:53:14Z"),
    ("dateTimeAdd('2020-01-31', 'P1M', 'yyyy/MM/dd')", "2020/02/29"),
    ("dateTimeFromEpoch(1683040573)", "2023-05-02T15:16:13Z"),
    ("dateTimeToEpoch('2023-05-02T15:16:13Z')", 1683040573),
    ("utcNow()", "20190305T175318Z"),
    ("utcNow('d')", "03/05/2019"),
    ("utcNow('M d')", "3 5"),
    ("utcNow('u')", "2019-03-05 17:53:18Z"),
    ("environment().suffixes.storage", "core.windows.net"),
    (f"filter({DOGS}, lambda('dog', greaterOrEquals(lambdaVariables('dog').age, 8)))", [{"name": "Kira", "age": 8}]),
    ("filter(range(0, 10), lambda('i', equals(0, mod(lambdaVariables('i'), 2))))", [0, 2, 4, 6, 8]),
    ("filter(createArray('a', 'b'), lambda('x', 'i', equals(lambdaVariables('i'), 1)))", ["b"]),
    (f"map({DOGS}, {_of_dog('name')})", ["Evie", "Casper", "Indy", "Kira"]),
    ("map(createArray('a'), lambda('x', 'i', format('{0}{1}', lambdaVariables('x'), lambdaVariables('i'))))", ["a0"]),
    (
        "map(range(0, 2), lambda('i', map(range(0, 2), lambda('j', add(lambdaVariables('i'), lambdaVariables('j'))))))",
        [[0, 1], [1, 2]],
    ),
    (
        f"reduce(map({DOGS}, {_of_dog('age')}), 1, "
        "lambda('cur', 'next', add(lambdaVariables('cur'), lambdaVariables('next'))))",
        19,
    ),
    (
        f"map(sort({DOGS}, lambda('a', 'b', less(lambdaVariables('a').age, lambdaVariables('b').age))), "
        f"{_of_dog('name')})",
        ["Indy", "Casper", "Evie", "Kira"],
    ),
    (f"toObject({DOGS}, {_of_dog('name')}, {_of_dog('age')})", {"Evie": 5, "Casper": 3, "Indy": 2, "Kira": 8}),
    ("toObject(createArray('a'), lambda('x', lambdaVariables('x')))", {"a": "a"}),
    (
        "groupBy(createArray('foo', 'bar', 'baz'), lambda('x', substring(lambdaVariables('x'), 0, 1)))",
        {"f": ["foo"], "b": ["bar", "baz"]},
    ),
    ("mapValues(createObject('foo', 'a'), lambda('x', toUpper(lambdaVariables('x'))))", {"foo": "A"}),
    ("and(true(), false())", False),
    ("and(false(), fail('not reached'))", False),
    ("or(true(), fail('not reached'))", True),
    ("or(false(), false())", False),
    ("not(false())", True),
    ("bool('true')", True),
    ("bool(1)", True),
    ("bool('False')", False),
    ("if(equals('a', 'a'), 'yes', fail('not reached'))", "yes"),
    ("if(false(), fail('not reached'), 'no')", "no"),
    ("add(5, 3)", 8),
    ("sub(7, 3)", 4),
    ("mul(5, 3)", 15),
    ("div(8, 3)", 2),
    ("div(-8, 3)", -2),
    ("mod(7, 3)", 1),
    ("mod(-7, 3)", -1),
    ("float('3.5')", 3.5),
    ("float(3)", 3.0),
    ("int('4')", 4),
    ("copyIndex()", 2),
    ("copyIndex(10)", 12),
    ("copyIndex('inner')", 1),
    ("copyIndex('inner', 5)", 6),
    ("createObject('intProp', 1, 'nullProp', null())", {"intProp": 1, "nullProp": None}),
    ("items(createObject('b', 1, 'a', 2))", [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
    ("objectKeys(createObject('b', 1, 'a', 2))", ["a", "b"]),
    ("json('{\"a\": [1, null, true]}')", {"a": [1, None, True]}),
    ("json('null')", None),
    ("null()", None),
    ("true()", True),
    ("false()", False),
    ('shallowMerge(createArray(json(\'{"a": {"b": 1}}\'), json(\'{"a": {"c": 2}}\')))', {"a": {"c": 2}}),
    (
        "extensionResourceId('/subscriptions/x', 'Microsoft.Authorization/locks', 'l')",
        "/subscriptions/x/providers/Microsoft.Authorization/locks/l",
    ),
    (
        "managementGroupResourceId('m', 'Microsoft.Authorization/policyDefinitions', 'p')",
        "/providers/Microsoft.Management/managementGroups/m/providers/Microsoft.Authorization/policyDefinitions/p",
    ),
    (
        "resourceId('Microsoft.ServiceBus/namespaces/queues', 'n', 'q')",
        "/subscriptions/sub/resourceGroups/group/providers/Microsoft.ServiceBus/namespaces/n/queues/q",
    ),
    (
        "resourceId('other', 'Microsoft.Storage/storageAccounts', 's')",
        "/subscriptions/sub/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/s",
    ),
    (
        "resourceId('1', 'other', 'Microsoft.Storage/storageAccounts', 's')",
        "/subscriptions/1/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/s",
    ),
    (
        "subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'r')",
        "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/r",
    ),
    (
        "tenantResourceId('Microsoft.Authorization/roleDefinitions', 'r')",
        "/providers/Microsoft.Authorization/roleDefinitions/r",
    ),
    ("resourceGroup().location", "westeurope"),
    ("resourceGroup().id", "/subscriptions/sub/resourceGroups/group"),
    ("subscription().subscriptionId", "sub"),
    ("tenant().tenantId", "ten"),
    ("deployment().name", "main"),
    ("newGuid()", "guid"),
    ("base64('one, two, three')", "b25lLCB0d28sIHRocmVl"),
    ("base64ToString('b25lLCB0d28sIHRocmVl')", "one, two, three"),
    ('base64ToJson(base64(\'{"one": "a"}\'))', {"one": "a"}),
    ("dataUri('Hello')", "data:text/plain;charset=utf8;base64,SGVsbG8="),
    ("dataUriToString('data:;base64,SGVsbG8sIFdvcmxkIQ==')", "Hello, World!"),
    ("buildUri(createObject('scheme', 'https', 'host', 'a.b', 'path', 'c', 'query', 'd=1'))", "https://a.b/c?d=1"),
    ("parseUri('https://a.b:8/c?d=1')", {"scheme": "https", "host": "a.b", "port": 8, "path": "/c", "query": "?d=1"}),
    ("endsWith('abcdef', 'EF')", True),
    ("endsWith('abcdef', 'e')", False),
    ("startsWith('abcdef', 'AB')", True),
    ("startsWith('abcdef', 'e')", False),
    (
        "format('{0}, {1}. Formatted number: {2:N0}', 'Hello', 'User', 8175133)",
        "Hello, User. Formatted number: 8,175,133",
    ),
    ("format('{0:D3}|{1,4}|{2,-3}|{{}}', 7, 'ab', 'c')", "007|  ab|c  |{}"),
    ("format('{0:00}-{1:X}', 5, 255)", "05-FF"),
    ("format('{0}', true())", "True"),
    ("guid('a')", "3703365d-5a9f-59b4-bca7-b9681389e4c1"),
    ("join(createArray('one', 'two', 'three'), ',')", "one,two,three"),
    ("join(createArray(1, 2), '-')", "1-2"),
    ("padLeft('123', 10, '0')", "0000000123"),
    ("padLeft(5, 2, '0')", "05"),
    ("replace('123-123-1234', '-', '')", "1231231234"),
    ("split('one,two,three', ',')", ["one", "two", "three"]),
    ("split('one;two,three', createArray(',', ';'))", ["one", "two", "three"]),
    ("string(5)", "5"),
    ("string(true())", "True"),
    ("string(createArray('a', 'b'))", '["a","b"]'),
    ("string(createObject('a', 1))", '{"a":1}'),
    ("substring('one two three', 4, 3)", "two"),
    ("substring('one', 1)", "ne"),
    ("toLower('One Two Three')", "one two three"),
    ("toUpper('One Two Three')", "ONE TWO THREE"),
    ("trim('    one two three   ')", "one two three"),
    ("length(uniqueString('a', 'b'))", 13),
    ("equals(uniqueString('a'), uniqueString('a'))", True),
    ("equals(uniqueString('a'), uniqueString('b'))", False),
    ("uri('http://contoso.org/firstpath', 'myscript.sh')", "http://contoso.org/myscript.sh"),
    ("uri('http://contoso.org/firstpath/', 'myscript.sh')", "http://contoso.org/firstpath/myscript.sh"),
    ("uriComponent('http://contoso.com/a b')", "http%3A%2F%2Fcontoso.com%2Fa%20b"),
    ("uriComponentToString('http%3A%2F%2Fcontoso.com')", "http://contoso.com"),
    ("any('a')", "a"),
    ("sys.concat('a', 'b')", "ab"),
)
UNKNOWN_WITHOUT_PLACE = (
    *("resourceGroup().location", "subscription().id", "tenant().tenantId", "deployment().name", "newGuid()"),
    *("utcNow()", "uniqueString('a')", "reference('x')", "reference('x', '2020-01-01', 'Full').identity"),
    *("listKeys('x', '2020-01-01').primaryKey", "listSecrets('x')", "managementGroup().name", "deployer().objectId"),
    *("providers('a', 'b')", "pickZones('a', 'b', 'c')", "getSecret('a')", "resourceInfo('x').id"),
    *("toLogicalZone('a', 'b')", "toLogicalZones('a', 'b')", "toPhysicalZone('a', 'b')", "toPhysicalZones('a', 'b')"),
    *("toLower(resourceGroup().name)", "if(equals(resourceGroup().name, 'a'), 1, 2)", "externalInput('a')"),
    *("length(resourceGroup().tags)", "add(length(resourceGroup().name), 1)", "contains(resourceGroup().name, 'a')"),
)
REFUSED = (
    ("fail('because')", "because"),
    ("nothing('a')", "nothing() is not a function of templates"),
    ("take('a')", "take() has 1 arguments; it takes 2"),
    ("add('1', 2)", "add() takes a whole number as argument 1, not '1'"),
    ("add(true(), 2)", "add() takes a whole number"),
    ("mul('aaaa', 5)", "mul() takes a whole number"),
    ("add(9223372036854775807, 1)", "no whole number of 64 bits"),
    ("div(1, 0)", "div() can't be evaluated"),
    ("int('x')", "'x' is no whole number"),
    ("substring('abc', 2, 5)", "the text has 3 characters"),
    ("createObject('a')", "pairs"),
    ("json('{')", "json() can't be evaluated"),
    ("json('[NaN]')", "NaN is no JSON"),
    ("base64ToString('%')", "is no base64"),
    ("parseCidr('x')", "parseCidr() can't be evaluated"),
    ("cidrSubnet('10.0.0.0/24', 25, 2)", "has no subnet 2"),
    ("cidrHost('10.0.0.0/24', 254)", "has no host 254"),
    ("dateTimeAdd('x', 'P1D')", "is no time of ISO 8601"),
    ("dateTimeAdd('2020-01-01', '1D')", "is no duration of ISO 8601"),
    ("format('{1}', 'a')", "no argument for {1}"),
    ("format('{', 'a')", "a lone '{'"),
    ("first(5)", "first() takes a string or array"),
    ("createObject('a', 1).b", "there is no 'b' in a value that has a"),
    ("createArray(1)[3]", "there is no 3"),
    ("'a", "can't be read"),
    ("concat('a' 'b')", "',' is missing"),
    ("concat('a'", "',' is missing"),
    ("concat(", "ends too early"),
    ("parameters('x')", "the template has no parameter 'x'"),
    ("variables('x')", "the template has no variable 'x'"),
    ("copyIndex('x')", "outside of that loop"),
    ("map(createArray(1), 5)", "a lambda is missing"),
    ("lambdaVariables('x')", "no lambda has an argument 'x'"),
    ("greater('a', 1)", "can't be compared"),
    ("if('maybe', 1, 2)", "if() takes a bool, not 'maybe'"),
    ("indexFromEnd(createArray(1), 2)", "there is no item 2 from the end"),
    ("flatten(createArray(1))", "arrays of arrays"),
    ("union(createArray(1), createObject())", "can't be united"),
)


def scope(place: Place | None = PLACE) -> Scope:
    return Scope(Setting(place), loops={"": 2, "inner": 1})


@pytest.mark.parametrize(("expression", "expected"), EXAMPLES, ids=[each for each, _ in EXAMPLES])
def test_a_function_gives_what_its_documentation_says(expression: str, expected: object) -> None:
    found = scope().value(f"[{expression}]")
    assert (found, type(found)) == (expected, type(expected))
    assert json.dumps(found) == json.dumps(expected)  # true is not 1


@pytest.mark.parametrize("expression", UNKNOWN_WITHOUT_PLACE)
def test_what_depends_on_the_cloud_is_unknown(expression: str) -> None:
    assert isinstance(scope(None).value(f"[{expression}]"), Unknown | Mixed)


@pytest.mark.parametrize(("expression", "why"), REFUSED, ids=[each for each, _ in REFUSED])
def test_what_has_no_value_says_why(expression: str, why: str) -> None:
    with pytest.raises(Unresolved) as caught:
        scope().value(f"[{expression}]")
    assert why in str(caught.value)


def test_every_documented_function_is_known_and_no_other() -> None:
    known = {*FUNCTIONS, *SPECIAL_NAMES, *CLOUD_FUNCTIONS}
    assert known - {"lambda"} == {each.lower() for each in DOCUMENTED}


def test_every_function_has_an_example() -> None:
    texts = " ".join([*(each for each, _ in EXAMPLES), *UNKNOWN_WITHOUT_PLACE, *(each for each, _ in REFUSED)]).lower()
    in_templates = {"references"}  # `test_reading.py`: it needs a template with a loop
    assert [name for name in (each.lower() for each in DOCUMENTED) if f"{name}(" not in texts] == sorted(in_templates)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("concat(resourceGroup().name, '/', 'Q')", "…/Q"),
        ("toLower(format('{0}/{1}', uniqueString('a'), 'Q'))", "…/q"),
        ("last(split(resourceId('Microsoft.ServiceBus/namespaces/topics', 'n', 't'), '/'))", "t"),
        ("replace(concat(resourceGroup().name, '/a b'), ' ', '-')", "…/a-b"),
        ("join(createArray(resourceGroup().name, 'b'), '/')", "…/b"),
        ("contains(createArray(resourceGroup().name, 'b'), 'b')", True),
        ("empty(concat('a', resourceGroup().name))", False),
        ("and(false(), equals(resourceGroup().name, 'a'))", False),
        ("or(true(), equals(resourceGroup().name, 'a'))", True),
        ("length(createArray(resourceGroup().name))", 1),
        ("first(createArray('a', resourceGroup().name))", "a"),
        ("createObject('a', 1, 'b', resourceGroup().name).a", 1),
        ("union(createObject('a', resourceGroup().name), createObject('b', 1)).b", 1),
        ("guid('a')", "3703365d-5a9f-59b4-bca7-b9681389e4c1"),
    ],
)
def test_what_is_known_of_a_partly_unknown_value_stays_known(expression: str, expected: object) -> None:
    found = scope(None).value(f"[{expression}]")
    shown = "".join(e if isinstance(e, str) else "…" for e in found.pieces) if isinstance(found, Mixed) else found
    assert shown == expected


def test_a_bracket_is_doubled_to_be_one() -> None:
    assert scope().value("[[a]") == "[a]"
    assert scope().value("[a") == "[a"
    assert scope().value("a]") == "a]"
