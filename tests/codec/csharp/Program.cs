// Writes what .NET reads in each text of time_spans.txt, by ticks: `dotnet run < texts > time_spans.txt`, the texts one a
// line. A line is the ticks, or "no", a tab, and the text.
using System.Globalization;

for (var text = Console.ReadLine(); text != null; text = Console.ReadLine())
{
    var isSpan = TimeSpan.TryParse(text, CultureInfo.InvariantCulture, out var span);
    Console.WriteLine($"{(isSpan ? span.Ticks.ToString() : "no")}\t{text}");
}
