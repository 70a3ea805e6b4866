#include "traces/pictures/terminal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
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

constexpr std::size_t kSeveral = static_cast<std::size_t>(-1);

/// A span of a rank as it is drawn.
struct DrawnSpan {
  Look look = Look::Bubble;
  std::size_t number = 0;  // among those of its rank
  std::int64_t start_ns = 0, end_ns = 0;
  int micro_batch = 0;
};

/// What a column shows: the look that fills most of it, and the span that is most of that.
struct Column {
  Look look = Look::Bubble;
  std::size_t span = kSeveral;  // its number; kSeveral: several alike, or none
  int micro_batch = 0;
};

/// Time in each column by look, and the span that has most of each.
struct Share {
  std::array<double, kLooks> ns{};
  std::array<double, kLooks> most{};
  std::array<std::size_t, kLooks> span{};
  std::array<int, kLooks> micro_batch{};
};

/// Figures of a rank, and of what is drawn of it.
struct DrawnRank {
  int number = 0;
  std::int64_t busy_ns = 0;
  int peak_activations = 0;
};

/// What is to be drawn. Ranks are visited one at a time, and twice, so that nothing grows with the
/// number of their spans: visit(place of the rank, what is called with each DrawnSpan in turn).
struct Picture {
  std::vector<DrawnRank> ranks;
  std::int64_t makespan_ns = 0, end_ns = 0;
  std::function<void(std::size_t, const std::function<void(const DrawnSpan&)>&)> visit;
};

Picture picture_of(const ComputeView& view, std::int64_t makespan_ns) {
  Picture picture{.ranks = {}, .makespan_ns = makespan_ns, .end_ns = view.end_ns, .visit = {}};
  for (const ViewedRank& rank : view.ranks)
    picture.ranks.push_back({rank.rank->rank, rank.busy_ns, rank.peak_activations});
  picture.visit = [&view](std::size_t rank, const auto& draw) {
    std::size_t number = 0;
    for (const LookedSpan& one : view.ranks[rank].spans) {
      draw({one.look, number++, one.span->start_ns, one.span->end_ns,
            one.span->cell.action.micro_batch.value});
    }
  };
  return picture;
}

/// Spans of the compute lane of a rank of a step that has ended.
template <class Draw>
void visit_program(const Program& program, const Timeline& timeline, std::size_t rank, Draw draw) {
  for (InstructionId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
    const Instruction& in = program.code[id];
    if (!in.has(Instruction::kOnComputeLane)) continue;
    draw(TraceSpan{.kind = in.is_communication() ? SpanKind::Transfer : SpanKind::Compute,
                   .cell = drawn_cell(program, id),
                   .lane = 0,
                   .start_ns = timeline.start[id],
                   .moving_ns = timeline.start[id],
                   .end_ns = timeline.end[id],
                   .is_part = in.kind == ActionKind::Part});
  }
}

Picture picture_of(const Program& program, const Timeline& timeline, int most_ranks) {
  Picture picture{.ranks = {},
                  .makespan_ns = timeline.makespan_ns,
                  .end_ns = timeline.makespan_ns,
                  .visit = {}};
  const bool forward_only = is_forward_only(program);
  for (int r = 0; r < std::min(program.ranks(), most_ranks); ++r) {
    DrawnRank rank{.number = r};
    LiveActivations live(forward_only);
    visit_program(program, timeline, static_cast<std::size_t>(r), [&](const TraceSpan& span) {
      if (span.kind != SpanKind::Compute) return;
      rank.busy_ns += span.duration_ns();
      if (!span.is_part) live.add(span.cell);
    });
    rank.peak_activations = live.peak();
    picture.ranks.push_back(rank);
  }
  picture.visit = [&program, &timeline](std::size_t rank, const auto& draw) {
    std::size_t number = 0;
    visit_program(program, timeline, rank, [&](const TraceSpan& span) {
      if (const std::optional<Look> look = look_of(span)) {
        draw({*look, number++, span.start_ns, span.end_ns, span.cell.action.micro_batch.value});
      }
    });
  };
  return picture;
}

std::vector<Column> columns_of(const Picture& picture, std::size_t rank, int count) {
  std::vector<Share> shares(static_cast<std::size_t>(count));
  const double width = static_cast<double>(picture.end_ns) / count;
  picture.visit(rank, [&](const DrawnSpan& span) {
    const auto start = static_cast<double>(span.start_ns);
    const auto end = static_cast<double>(span.end_ns);
    const std::size_t look = static_cast<std::size_t>(span.look);
    const int first = std::clamp(static_cast<int>(std::floor(start / width)), 0, count - 1);
    for (int c = first; c < count && c * width < end; ++c) {
      const double part = std::min(end, (c + 1) * width) - std::max(start, c * width);
      if (part <= 0) continue;
      Share& share = shares[static_cast<std::size_t>(c)];
      share.ns[look] += part;
      if (part > share.most[look]) {
        share.most[look] = part;
        share.span[look] = span.number;
        share.micro_batch[look] = span.micro_batch;
      }
    }
  });
  std::vector<Column> columns;
  for (Share& share : shares) {
    const double taken = std::accumulate(share.ns.begin(), share.ns.end(), 0.0);
    share.ns[static_cast<std::size_t>(Look::Bubble)] = width - taken;
    const auto most = std::max_element(share.ns.begin(), share.ns.end()) - share.ns.begin();
    const std::size_t look = static_cast<std::size_t>(most);
    const bool alone = share.most[look] > 0.5 * share.ns[look];
    columns.push_back(
        {static_cast<Look>(look), alone ? share.span[look] : kSeveral, share.micro_batch[look]});
  }
  return columns;
}

class Painter {
 public:
  explicit Painter(const TerminalOptions& options) : options_(options) {}

  std::string run(const Picture& picture) {
    used_[static_cast<std::size_t>(Look::Bubble)] = true;
    int digits = 1;
    for (const DrawnRank& rank : picture.ranks)
      digits = std::max(digits, static_cast<int>(std::to_string(rank.number).size()));
    const int width = std::max(options_.width, kLeastWidth);
    const int before = 5 + digits + 2;  // "rank 3 |"
    const bool figures = width >= kFiguresFrom;
    const int room = std::max(10, width - before - 1 - (figures ? kFiguresWidth : 0));
    const int count = column_count(picture, room);
    for (std::size_t r = 0; r < picture.ranks.size(); ++r) {
      const DrawnRank& rank = picture.ranks[r];
      const std::string number = std::to_string(rank.number);
      out_ += "rank " + std::string(static_cast<std::size_t>(digits) - number.size(), ' ') + number;
      out_ += " |";
      if (picture.end_ns > 0) paint(columns_of(picture, r, count));
      out_ += '|';
      if (figures) out_ += figures_of_rank(rank, picture.makespan_ns);
      out_ += '\n';
    }
    axis(picture.end_ns, before, picture.end_ns > 0 ? count : 0);
    legend(before, width);
    return std::move(out_);
  }

 private:
  static constexpr int kLeastWidth = 40;
  static constexpr int kFiguresFrom = 60;
  static constexpr int kFiguresWidth = 27;  // " busy 100.0%  in flight 512"

  /// So many columns that a unit of time is a whole number of them, where that fits; else all there
  /// are. Notes which looks occur.
  int column_count(const Picture& picture, int room) {
    std::int64_t unit = picture.end_ns;
    for (std::size_t r = 0; r < picture.ranks.size(); ++r) {
      picture.visit(r, [&](const DrawnSpan& span) {
        used_[static_cast<std::size_t>(span.look)] = true;
        unit = std::gcd(std::gcd(unit, span.start_ns), span.end_ns);
      });
    }
    const std::int64_t units = unit > 0 ? picture.end_ns / unit : 0;
    if (units == 0 || units > room) return room;
    return static_cast<int>(units * (room / units));
  }

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
      const bool goes_on = c > 0 && column.span != kSeveral && columns[c - 1].span == column.span;
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
    } else if (column.span == kSeveral) {
      out_ += style.several;
    } else if (numbered && (more || style.single == 0)) {
      out_ += static_cast<char>('0' + column.micro_batch % 10);
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

  static std::string figures_of_rank(const DrawnRank& rank, std::int64_t makespan) {
    const double busy =
        makespan > 0 ? 100.0 * static_cast<double>(rank.busy_ns) / static_cast<double>(makespan)
                     : 0.0;
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), " busy %.1f%%  in flight %d", busy,
                  rank.peak_activations);
    return text.data();
  }

  void axis(std::int64_t end_ns, int before, int count) {
    const std::string end = format_duration(Nanoseconds(end_ns));
    out_ += std::string(static_cast<std::size_t>(before), ' ') + "0";
    const int gap = std::max(1, count - 1 - static_cast<int>(end.size()));
    out_ += std::string(static_cast<std::size_t>(gap), ' ') + end + "\n";
  }

  /// What each kind that occurs looks like; wrapped at the width.
  void legend(int before, int width) {
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
      if (!used_[static_cast<std::size_t>(l)]) continue;
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
  std::array<bool, kLooks> used_{};
  std::string out_;
};

}  // namespace

std::string terminal_timeline(const TraceTimeline& trace, const TerminalOptions& options) {
  const ComputeView view = compute_view(trace);
  return Painter(options).run(picture_of(view, trace.makespan_ns));
}

std::string terminal_timeline(const Program& program, const Timeline& timeline, int most_ranks,
                              const TerminalOptions& options) {
  return Painter(options).run(picture_of(program, timeline, most_ranks));
}

}  // namespace pipewright::traces
