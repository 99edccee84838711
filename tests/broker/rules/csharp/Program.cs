// Writes what C# makes of operators over all kinds of properties: `dotnet run > results.txt`. Operands are dynamic, so
// that their kinds bind the operator when it runs, as those of a message's properties do.
using System.Globalization;
using Microsoft.CSharp.RuntimeBinder;

CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
var day = new DateTime(1970, 1, 1, 0, 0, 0, DateTimeKind.Utc);
var kinds = new (string Name, object? Seven, object? Two)[]
{
    ("null", null, null), ("bool", true, false), ("sbyte", (sbyte)7, (sbyte)2), ("byte", (byte)7, (byte)2),
    ("short", (short)7, (short)2), ("ushort", (ushort)7, (ushort)2), ("int", 7, 2), ("uint", 7u, 2u), ("long", 7L, 2L),
    ("ulong", 7UL, 2UL), ("char", (char)7, (char)2), ("float", 7f, 2f), ("double", 7d, 2d), ("decimal", 7m, 2m),
    ("string", "7", "2"), ("Uri", new Uri("http://7"), new Uri("http://2")),
    ("Guid", new Guid("00000000-0000-0000-0000-000000000007"), new Guid("00000000-0000-0000-0000-000000000002")),
    ("DateTime", day.AddSeconds(7), day.AddSeconds(2)),
    ("DateTimeOffset", new DateTimeOffset(day.AddSeconds(7)), new DateTimeOffset(day.AddSeconds(2))),
    ("TimeSpan", TimeSpan.FromSeconds(7), TimeSpan.FromSeconds(2)), ("byte[]", new byte[] { 7 }, new byte[] { 2 }),
};
var operators = new (string Sign, Func<dynamic?, dynamic?, object?> Apply)[]
{
    ("+", (a, b) => a + b), ("-", (a, b) => a - b), ("*", (a, b) => a * b), ("/", (a, b) => a / b),
    ("%", (a, b) => a % b), ("=", (a, b) => a == b), ("<", (a, b) => a < b),
};
Console.WriteLine($"# C# on .NET {Environment.Version}: kind of `a sign b`; \".\" where there is no operator");
foreach (var (sign, apply) in operators)
{
    Console.WriteLine($"table {sign} {string.Join(" ", kinds.Select(each => each.Name))}");
    foreach (var left in kinds)
        Console.WriteLine($"{left.Name} {string.Join(" ", kinds.Select(right => KindOf(() => apply(left.Seven, right.Two))))}");
}
Console.WriteLine("# kind of -a and of +a");
Console.WriteLine("signs");
foreach (var each in kinds)
    Console.WriteLine($"{each.Name} {KindOf(() => -(dynamic?)each.Seven)} {KindOf(() => +(dynamic?)each.Seven)}");
Console.WriteLine("# a | sign | b | result; spans and dates are ticks, ! is an exception");
Console.WriteLine("values");
const decimal tiny = 0.0000000000000000000000000001m;
var tick = TimeSpan.FromTicks(1);
foreach (var (a, sign, b) in new (object, string, object)[]
{
    (int.MaxValue, "+", 1), (int.MinValue, "-", 1), (int.MaxValue, "*", 2), (int.MinValue, "/", -1), (int.MinValue, "%", -1),
    (1, "/", 0), (1, "%", 0), (-7, "/", 2), (-7, "%", 2), (7, "%", -2), (long.MaxValue, "+", 1L), (long.MinValue, "/", -1L),
    (long.MinValue, "%", -1), (long.MaxValue, "*", 3), (2u, "-", 7u), (uint.MaxValue, "+", 1u), (uint.MaxValue, "*", uint.MaxValue),
    (uint.MaxValue, "+", 1), (2UL, "-", 7UL), (ulong.MaxValue, "+", 1UL), (ulong.MaxValue, "/", 2UL),
    (0.1f, "+", 0.2f), (1f, "/", 3f), (float.MaxValue, "*", 2f), (0.1f, "+", 0.2), (1, "/", 3f), (16777217L, "+", 0f),
    (1f, "/", 0f), (7.5, "%", -2.0), (1.0, "/", 0), (-1, "/", 0.0), (0.1, "+", 0.2),
    (decimal.MaxValue, "+", 1m), (decimal.MaxValue, "+", 0.4m), (decimal.MinValue, "*", 2), (1m, "/", 0m), (1m, "%", 0),
    (1m, "/", 3m), (2m, "/", 3m), (10m, "/", 3), (1.10m, "*", 2), (1.10m, "+", 2.005m), (1.0m, "/", 2), (-7.5m, "%", 2m),
    (7.5m, "%", -2), (12345678901234567890.123m, "*", 1.5m), (3m * tiny, "/", 2m), (1.5m, "*", tiny),
    (7922816251426433759354395033.5m, "*", 10), (100m, "/", 8), (19.90m, "-", 20), (ulong.MaxValue, "+", 0.5m),
    (TimeSpan.FromTicks(5), "*", 0.5), (TimeSpan.FromTicks(7), "*", 0.5), (3, "*", tick), (TimeSpan.FromTicks(5), "/", 2),
    (tick, "/", 0), (tick, "*", double.NaN), (TimeSpan.MaxValue, "+", tick), (TimeSpan.MinValue, "-", tick),
    (TimeSpan.MaxValue, "*", 2), (TimeSpan.FromSeconds(7), "/", TimeSpan.FromSeconds(2)), (tick, "/", TimeSpan.Zero),
    (DateTimeOffset.MaxValue, "+", tick), (DateTimeOffset.MinValue, "-", tick), (DateTimeOffset.MaxValue, "-", DateTimeOffset.MinValue),
    (DateTimeOffset.UnixEpoch, "-", DateTimeOffset.MaxValue), (DateTimeOffset.UnixEpoch, "+", tick),
    ("a", "+", 'x'), ('x', "+", "a"), ("a", "+", 1.50m), ("a", "+", tiny), ("a", "+", 0.1f), ("a", "+", 123456789f),
    ("a", "+", 1234567890f), ("a", "+", 1e-5f), ("a", "+", 1e16), ("a", "+", 1e17), ("a", "+", 1.5e17), ("a", "+", 1e-4),
    ("a", "+", 1.5e-5), ("a", "+", 1e100), ("a", "+", -0.0), ("a", "+", double.NaN), ("a", "+", double.NegativeInfinity),
    ("a", "+", 2.0), (1.5, "+", "a"), ("a", "+", true), (false, "+", "a"), ("a", "+", new TimeSpan(1, 2, 3, 4, 5)),
    ("a", "+", new TimeSpan(0, -2, 3)), ("a", "+", TimeSpan.MinValue), ("a", "+", Guid.Empty), ("a", "+", ulong.MaxValue),
})
    Console.WriteLine($"{Shown(a)} | {sign} | {Shown(b)} | {Result(() => operators.First(each => each.Sign == sign).Apply(a, b))}");

static string KindOf(Func<object?> apply)
{
    try { return Name(apply()); }
    catch (RuntimeBinderException) { return "."; }
}

static string Result(Func<object?> apply)
{
    try { return Shown(apply()); }
    catch (Exception error) { return $"!{error.Message.Split(" (Parameter")[0]}"; }
}

static string Shown(object? value) => $"{Name(value)} " + value switch
{
    TimeSpan span => span.Ticks.ToString(),
    DateTimeOffset date => date.UtcTicks.ToString(),
    _ => value?.ToString(),
};

static string Name(object? value) => value switch
{
    null => "null", bool => "bool", int => "int", uint => "uint", long => "long", ulong => "ulong", float => "float",
    double => "double", decimal => "decimal", char => "char", string => "string", _ => value.GetType().Name,
};
