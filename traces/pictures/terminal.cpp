#include "traces/pictures/terminal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/base/units.hpp"
#include "traces/pictures/compute_view.hpp"

namespace pipewright::traces {
namespace {

struct Style {
  char several;           // capital: several actions in a column
  char single;            // one action in one column; 0: its digit
  std::string_view fill;  // after the digit
  char ascii_fill;
  std::string_view color;  // ANSI
};

// By Look.
constexpr std::array<Style, kLooks> kStyles = {{{'F', 0, "═", '=', "34"},
                                                {'B', 'b', "─", '-', "32"},
                                                {'I', 'i', "╌", '~', "36"},
                                                {'W', 'w', "▒", '#', "35"},
                                                {'X', 'x', "×", 'x', "33"},
                                                {'O', 'o', "o", 'o', "33"},
                                                {':', ':', ":", ':', "90"},
                                                {'!', '!', "!", '!', "1;31"},
                                                {'.', '.', ".", '.', "90"}}};

const Style& style_of(Look look) { return kStyles[static_cast<std::size_t>(look)]; }

/// What a column shows: the look that fills most of it, and the span that is most of that.
struct Column {
  Look look = Look::Bubble;
  const TraceSpan* span = nullptr;  // nullptr: several alike, or none
};

/// Time in each column by look, and the span that has most of each.
struct Share {
  std::array<double, kLooks> ns{};
  std::array<double, kLooks> most{};
  std::array<const TraceSpan*, kLooks> span{};
};

std::vector<Column> columns_of(const ViewedRank& rank, std::int64_t end_ns, int count) {
  std::vector<Share> shares(static_cast<std::size_t>(count));
  const double width = static_cast<double>(end_ns) / count;
  for (const LookedSpan& looked : rank.spans) {
    const auto start = static_cast<double>(looked.span->start_ns);
    const auto end = static_cast<double>(looked.span->end_ns);
    const std::size_t look = static_cast<std::size_t>(looked.look);
    const int first = std::clamp(static_cast<int>(std::floor(start / width)), 0, count - 1);
    for (int c = first; c < count && c * width < end; ++c) {
      const double part = std::min(end, (c + 1) * width) - std::max(start, c * width);
      if (part <= 0) continue;
      Share& share = shares[static_cast<std::size_t>(c)];
      share.ns[look] += part;
      if (part > share.most[look]) {
        share.most[look] = part;
        share.span[look] = looked.span;
      }
    }
  }
  std::vector<Column> columns;
  for (Share& share : shares) {
    const double taken = std::accumulate(share.ns.begin(), share.ns.end(), 0.0);
    share.ns[static_cast<std::size_t>(Look::Bubble)] = width - taken;
    const auto most = std::max_element(share.ns.begin(), share.ns.end()) - share.ns.begin();
    const std::size_t look = static_cast<std::size_t>(most);
    const bool alone = share.most[look] > 0.5 * share.ns[look];
    columns.push_back({static_cast<Look>(look), alone ? share.span[look] : nullptr});
  }
  return columns;
}

/// So many columns that a unit of time is a whole number of them, where that fits; else all there
/// are.
int column_count(const ComputeView& view, int room) {
  std::int64_t unit = view.end_ns;
  for (const ViewedRank& rank : view.ranks) {
    for (const LookedSpan& looked : rank.spans) {
      unit = std::gcd(std::gcd(unit, looked.span->start_ns), looked.span->end_ns);
    }
  }
  const std::int64_t units = unit > 0 ? view.end_ns / unit : 0;
  if (units == 0 || units > room) return room;
  return static_cast<int>(units * (room / units));
}

class Painter {
 public:
  explicit Painter(const TerminalOptions& options) : options_(options) {}

  std::string run(const TraceTimeline& trace) {
    const ComputeView view = compute_view(trace);
    int digits = 1;
    for (const ViewedRank& rank : view.ranks) {
      digits = std::max(digits, static_cast<int>(std::to_string(rank.rank->rank).size()));
    }
    const int width = std::max(options_.width, kLeastWidth);
    const int before = 5 + digits + 2;  // "rank 3 |"
    const bool figures = width >= kFiguresFrom;
    const int room = std::max(10, width - before - 1 - (figures ? kFiguresWidth : 0));
    const int count = column_count(view, room);
    for (const ViewedRank& rank : view.ranks) {
      const std::string number = std::to_string(rank.rank->rank);
      out_ += "rank " + std::string(static_cast<std::size_t>(digits) - number.size(), ' ') + number;
      out_ += " |";
      if (view.end_ns > 0) paint(columns_of(rank, view.end_ns, count));
      out_ += '|';
      if (figures) out_ += figures_of_rank(rank, trace.makespan_ns);
      out_ += '\n';
    }
    axis(view, before, view.end_ns > 0 ? count : 0);
    legend(view, before, width);
    return std::move(out_);
  }

 private:
  static constexpr int kLeastWidth = 40;
  static constexpr int kFiguresFrom = 60;
  static constexpr int kFiguresWidth = 27;  // " busy 100.0%  in flight 512"

  void paint(const std::vector<Column>& columns) {
    Look painted = Look::Bubble;
    bool colored = false;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const Column& column = columns[c];
      if (options_.color && (!colored || painted != column.look)) {
        out_ += "\x1b[0;" + std::string(style_of(column.look).color) + "m";
        colored = true;
        painted = column.look;
      }
      const bool goes_on = c > 0 && column.span != nullptr && columns[c - 1].span == column.span;
      const bool more = c + 1 < columns.size() && columns[c + 1].span == column.span;
      put(column, goes_on, more);
    }
    if (colored) out_ += "\x1b[0m";
  }

  void put(const Column& column, bool goes_on, bool more) {
    const Style& style = style_of(column.look);
    const bool numbered = column.look <= Look::Pair;
    if (goes_on) {
      fill(style);
    } else if (column.span == nullptr) {
      out_ += style.several;
    } else if (numbered && (more || style.single == 0)) {
      out_ += static_cast<char>('0' + column.span->cell.action.micro_batch.value % 10);
    } else {
      out_ += style.single;
    }
  }

  void fill(const Style& style) {
    if (options_.ascii) {
      out_ += style.ascii_fill;
    } else {
      out_ += style.fill;
    }
  }

  static std::string figures_of_rank(const ViewedRank& rank, std::int64_t makespan) {
    const double busy =
        makespan > 0 ? 100.0 * static_cast<double>(rank.busy_ns) / static_cast<double>(makespan)
                     : 0.0;
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), " busy %.1f%%  in flight %d", busy,
                  rank.peak_activations);
    return text.data();
  }

  void axis(const ComputeView& view, int before, int count) {
    const std::string end = format_duration(Nanoseconds(view.end_ns));
    out_ += std::string(static_cast<std::size_t>(before), ' ') + "0";
    const int gap = std::max(1, count - 1 - static_cast<int>(end.size()));
    out_ += std::string(static_cast<std::size_t>(gap), ' ') + end + "\n";
  }

  /// What each kind that occurs looks like; wrapped at the width.
  void legend(const ComputeView& view, int before, int width) {
    const std::string indent(static_cast<std::size_t>(before), ' ');
    std::string line = indent;
    int used = before;
    const auto item = [&](const std::string& text, int columns, std::string_view color) {
      if (used + columns > width && used > before) {
        out_ += line + "\n";
        line = indent;
        used = before;
      }
      if (used > before) line += "  ";
      line += options_.color && !color.empty()
                  ? "\x1b[0;" + std::string(color) + "m" + text + "\x1b[0m"
                  : text;
      used += columns + 2;
    };
    bool numbered = false;
    for (int l = 0; l < kLooks; ++l) {
      if (!view.used[static_cast<std::size_t>(l)]) continue;
      const Look look = static_cast<Look>(l);
      const Style& style = style_of(look);
      const std::string name(name_of(look));
      const std::string filled =
          options_.ascii ? std::string(1, style.ascii_fill) : std::string(style.fill);
      if (look > Look::Pair) {
        item(style.single + (" = " + name), static_cast<int>(4 + name.size()), style.color);
        continue;
      }
      numbered = true;
      const std::string single(1, style.single == 0 ? '0' : style.single);
      item(single + " 0" + filled + " = " + name, static_cast<int>(7 + name.size()), style.color);
    }
    if (numbered) {
      item("digit: micro-batch", 18, "");
      item("capital: several", 16, "");
    }
    out_ += line + "\n";
  }

  const TerminalOptions options_;
  std::string out_;
};

}  // namespace

std::string terminal_timeline(const TraceTimeline& trace, const TerminalOptions& options) {
  return Painter(options).run(trace);
}

}  // namespace pipewright::traces
