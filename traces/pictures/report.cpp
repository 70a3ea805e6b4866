#include "traces/pictures/report.hpp"

#include "traces/pictures/escape.hpp"

namespace pipewright::traces {
namespace {

constexpr std::string_view kStyle =
    "body{font-family:sans-serif;color:#222;margin:24px;max-width:1100px}"
    "h1{font-size:20px}h2{font-size:15px;margin-top:24px}"
    "pre{background:#fbeaea;border-left:4px solid #d03a3a;padding:10px;overflow-x:auto}"
    "table{border-collapse:collapse;font-size:13px}"
    "th,td{border-bottom:1px solid #ddd;padding:3px 10px;text-align:right}"
    "th:first-child,td:first-child{text-align:left}"
    "svg{max-width:100%;height:auto}p{margin:2px 0}";

void append_row(const std::vector<std::string>& cells, std::string_view tag, std::string& page) {
  page += "<tr>";
  for (const std::string& cell : cells) {
    page += "<" + std::string(tag) + ">" + escaped(cell) + "</" + std::string(tag) + ">";
  }
  page += "</tr>\n";
}

void append_table(const ReportTable& table, std::string& page) {
  page += "<h2>" + escaped(table.title) + "</h2>\n<table>\n";
  append_row(table.header, "th", page);
  for (const auto& row : table.rows) append_row(row, "td", page);
  page += "</table>\n";
}

}  // namespace

std::string html_report(const Report& report) {
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>" +
                     escaped(report.title) + "</title>\n<style>" + std::string(kStyle) +
                     "</style></head>\n<body>\n<h1>" + escaped(report.title) + "</h1>\n";
  for (const std::string& fact : report.facts) page += "<p>" + escaped(fact) + "</p>\n";
  if (!report.verdict.empty()) page += "<pre>" + escaped(report.verdict) + "</pre>\n";
  page += report.svg;
  for (const ReportTable& table : report.tables) append_table(table, page);
  return page + "</body></html>\n";
}

}  // namespace pipewright::traces
