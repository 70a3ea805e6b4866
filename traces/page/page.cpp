#include "traces/page/page.hpp"

#include <map>
#include <string_view>

#include "core/base/error.hpp"
#include "traces/page/page_sources.hpp"
#include "traces/pictures/escape.hpp"

namespace pipewright::traces {
namespace {

std::string element(std::string_view tag, std::string_view text) {
  const std::string name(tag.substr(0, tag.find(' ')));
  return "<" + std::string(tag) + ">" + escaped(text) + "</" + name + ">";
}

std::string row_text(const std::vector<std::string>& cells, std::string_view tag,
                     int timeline = -1) {
  std::string row =
      timeline < 0 ? "<tr>" : "<tr data-timeline=\"" + std::to_string(timeline) + "\">";
  for (const std::string& cell : cells) row += element(tag, cell);
  return row + "</tr>\n";
}

std::string table_text(const PageTable& table) {
  std::string text = element("h2", table.title) + "\n<div class=\"wide\"><table>\n<thead>" +
                     row_text(table.header, "th") + "</thead>\n<tbody>\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    text += row_text(table.rows[i], "td", i < table.timelines.size() ? table.timelines[i] : -1);
  return text + "</tbody></table></div>\n";
}

/// JSON that can stand in a script element whatever its strings hold: nothing in it ends or begins
/// an element or a comment.
std::string script_text(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

/// The template with its {{places}} filled; what is put in is not looked at again.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& places) {
  std::string out;
  while (true) {
    const std::size_t open = text.find("{{");
    out += text.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = text.find("}}", open);
    const auto place = places.find(text.substr(open + 2, close - open - 2));
    PIPEWRIGHT_ASSERT(place != places.end(), "the page has a place that nothing fills");
    out += place->second;
    text.remove_prefix(close + 2);
  }
}

}  // namespace

std::string html_page(const PageText& text, const std::vector<PageData>& timelines) {
  std::string facts, tables, columns, script;
  if (!text.headline.empty()) facts += element("p class=\"main\"", text.headline) + "\n";
  for (const std::string& fact : text.facts) facts += element("p", fact) + "\n";
  for (const PageCheck& check : text.notes.checks)
    facts += element(check.passed ? "p class=\"passed\"" : "p class=\"failed\"",
                     (check.passed ? "✓ " : "✗ ") + check.text) +
             "\n";
  for (const PageChart& chart : text.notes.charts) tables += chart_element(chart);
  for (const PageTable& table : text.notes.tables) tables += table_text(table);
  for (const PageTable& table : text.tables) tables += table_text(table);
  Json data = {{"timelines", Json::array()}, {"one_of_them", text.one_of_them}};
  for (std::size_t n = 0; n < timelines.size(); ++n) {
    data["timelines"].push_back(timelines[n].facts);
    columns += "<script type=\"text/plain\" id=\"columns-" + std::to_string(n) + "\">" +
               timelines[n].columns + "</script>\n";
  }
  const PageSources& sources = page_sources();
  for (const std::string_view file : sources.scripts) script += file;
  return filled(sources.html,
                {{"title", escaped(text.title)},
                 {"style", std::string(sources.style)},
                 {"facts", facts},
                 {"verdict", text.verdict.empty() ? "" : element("pre", text.verdict)},
                 {"tables", tables},
                 {"data", script_text(data)},
                 {"columns", columns},
                 {"script", script}});
}

}  // namespace pipewright::traces
