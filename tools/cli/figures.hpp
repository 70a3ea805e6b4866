// Figures as text and as the JSON that outside scripts rely on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::tools {

/// "makespan_ns", "bubble_ratio", "span_bubble_ratio", "ranks". Where each of these stands for
/// several devices, its entry says for how many.
Json figures_fields(const Figures& figures, int devices_of_rank = 1);
/// The entries of "ranks" alone.
Json rank_fields(const std::vector<RankFigures>& ranks, int devices_of_rank = 1);
/// "message_queue_ns" of "message queue": the member of a time that has a name in words.
std::string nanoseconds_key(std::string_view words);
/// "1.2 ms" of ns, which may be no whole number.
std::string time_text(double ns);
/// "27.3 %".
std::string percent_text(double ratio);
/// "+1.2 %".
std::string signed_percent_text(double ratio);

}  // namespace pipewright::tools
