#include "traces/pictures/svg.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/units.hpp"
#include "traces/pictures/compute_view.hpp"
#include "traces/pictures/escape.hpp"

namespace pipewright::traces {
namespace {

// By Look; Bubble is the hatch behind everything.
constexpr std::array<std::string_view, kLooks> kFills = {"#4f7fd9", "#3f9e5f", "#2aa5a5",
                                                         "#9a5fb8", "#d98c2b", "#e0b43a",
                                                         "#9a9a9a", "#d03a3a", "url(#bubble)"};

constexpr int kRow = 30, kBar = 24, kLeft = 64, kRight = 150, kTop = 34, kBottom = 58;
constexpr double kDigit = 7.0;    // width of a digit of a label
constexpr double kNarrow = 0.75;  // neighbours narrower than this are drawn as one

std::string decimal(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

class Drawing {
 public:
  Drawing(const TraceTimeline& trace, const SvgOptions& options)
      : trace_(trace),
        view_(compute_view(trace)),
        width_(std::max(300, options.width)),
        scale_(view_.end_ns > 0 ? static_cast<double>(width_ - kLeft - kRight) /
                                      static_cast<double>(view_.end_ns)
                                : 0.0) {
    head(options.title);
  }

  std::string run() {
    for (std::size_t r = 0; r < view_.ranks.size(); ++r) row(view_.ranks[r], static_cast<int>(r));
    axis();
    legend();
    return out_ + "</svg>\n";
  }

 private:
  int bottom() const { return kTop + kRow * static_cast<int>(view_.ranks.size()); }

  void head(const std::string& title) {
    const std::string w = std::to_string(width_), h = std::to_string(bottom() + kBottom);
    out_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
            "\" viewBox=\"0 0 " + w + " " + h +
            "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<defs><pattern id=\"bubble\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
            "<rect width=\"1.5\" height=\"6\" fill=\"#cfcfcf\"/></pattern></defs>\n"
            "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    text(kLeft, 20, "start", escaped(title), " font-size=\"14\" font-weight=\"bold\"");
  }

  void text(double x, double y, std::string_view anchor, const std::string& escaped_text,
            std::string_view attributes = "") {
    if (escaped_text.empty()) return;
    out_ += "<text x=\"" + decimal(x) + "\" y=\"" + decimal(y) + "\" text-anchor=\"" +
            std::string(anchor) + '"' + std::string(attributes) + '>' + escaped_text + "</text>\n";
  }

  void row(const ViewedRank& rank, int index) {
    const double y = kTop + kRow * index;
    text(kLeft - 8, y + 17, "end", "rank " + std::to_string(rank.rank->rank));
    out_ += "<rect x=\"" + std::to_string(kLeft) + "\" y=\"" + decimal(y) + "\" width=\"" +
            std::to_string(width_ - kLeft - kRight) + "\" height=\"" + std::to_string(kBar) +
            "\" fill=\"url(#bubble)\"/>\n";
    for (std::size_t i = 0; i < rank.spans.size();) i = draw(rank, i, y);
    const double busy = trace_.makespan_ns > 0 ? 100.0 * static_cast<double>(rank.busy_ns) /
                                                     static_cast<double>(trace_.makespan_ns)
                                               : 0.0;
    std::array<char, 64> figures;
    std::snprintf(figures.data(), figures.size(), "busy %.1f%%, in flight %d", busy,
                  rank.peak_activations);
    text(width_ - kRight + 8, y + 17, "start", figures.data());
  }

  double x_of(std::int64_t ns) const { return kLeft + static_cast<double>(ns) * scale_; }

  /// Draws the span at `i`, together with those after it that are as narrow and look the same;
  /// returns the next.
  std::size_t draw(const ViewedRank& rank, std::size_t i, double y) {
    const LookedSpan& looked = rank.spans[i];
    const double x = x_of(looked.span->start_ns);
    double end = x_of(looked.span->end_ns);
    std::size_t next = i + 1;
    while (end - x < kNarrow * static_cast<double>(next - i) && next < rank.spans.size() &&
           rank.spans[next].look == looked.look &&
           x_of(rank.spans[next].span->start_ns) - end < kNarrow &&
           x_of(rank.spans[next].span->end_ns) - end < kNarrow) {
      end = x_of(rank.spans[next].span->end_ns);
      ++next;
    }
    const Action& action = looked.span->cell.action;
    const bool later = static_cast<std::size_t>(action.stage.value) >= view_.ranks.size();
    out_ += "<rect x=\"" + decimal(x) + "\" y=\"" + decimal(y) + "\" width=\"" + decimal(end - x) +
            "\" height=\"" + std::to_string(kBar) + "\" fill=\"" +
            std::string(kFills[static_cast<std::size_t>(looked.look)]) + '"';
    if (later) out_ += " fill-opacity=\"0.7\"";
    if (end - x > 3) out_ += " stroke=\"#fff\" stroke-width=\"0.6\"";
    out_ += "><title>" + std::string(looked.look == Look::Stuck ? "stuck: " : "") +
            to_string(looked.span->cell);
    if (next > i + 1) out_ += " and " + std::to_string(next - i - 1) + " more";
    out_ +=
        ", " +
        format_duration(Nanoseconds(rank.spans[next - 1].span->end_ns - looked.span->start_ns)) +
        "</title></rect>\n";
    label(looked, x, end, y);
    return next;
  }

  void label(const LookedSpan& looked, double x, double end, double y) {
    if (looked.look > Look::Pair) return;
    std::string number = std::to_string(looked.span->cell.action.micro_batch.value);
    if (looked.span->cell.partner) {
      number += "," + std::to_string(looked.span->cell.partner->micro_batch.value);
    }
    if (end - x < kDigit * static_cast<double>(number.size()) + 3) return;
    text((x + end) / 2, y + 16, "middle", number,
         " fill=\"#fff\" font-size=\"11\" pointer-events=\"none\"");
  }

  void axis() {
    const double y = bottom() + 12;
    text(kLeft, y, "start", "0");
    text(width_ - kRight, y, "end", format_duration(Nanoseconds(view_.end_ns)));
  }

  void legend() {
    constexpr std::array<std::string_view, kLooks> kWords = {"F forward",
                                                             "B backward",
                                                             "I gradient of inputs",
                                                             "W gradient of weights",
                                                             "overlapped pair",
                                                             "update, collective",
                                                             "transfer",
                                                             "stuck",
                                                             "bubble"};
    double x = kLeft, y = bottom() + 24;
    for (std::size_t l = 0; l < kWords.size(); ++l) {
      if (!view_.used[l]) continue;
      const double wide = 26 + 6.6 * static_cast<double>(kWords[l].size());
      if (x + wide > width_) {
        x = kLeft;
        y += 18;
      }
      out_ += "<rect x=\"" + decimal(x) + "\" y=\"" + decimal(y) +
              "\" width=\"12\" height=\"12\" fill=\"" + std::string(kFills[l]) + "\"/>\n";
      text(x + 17, y + 10.5, "start", std::string(kWords[l]));
      x += wide;
    }
  }

  const TraceTimeline& trace_;
  const ComputeView view_;
  const int width_;
  const double scale_;
  std::string out_;
};

}  // namespace

std::string svg_timeline(const TraceTimeline& trace, const SvgOptions& options) {
  return Drawing(trace, options).run();
}

}  // namespace pipewright::traces
