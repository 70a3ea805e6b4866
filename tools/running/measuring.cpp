#include "tools/running/measuring.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "planner/base/cores.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostSizes = 16;

std::string size_table(const ProfileSize& size, const Model& model, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"layer"},
               {"F", Align::Right},
               {"I", Align::Right},
               {"W", Align::Right},
               {"update", Align::Right}});
  for (std::size_t l = 0; l < size.layers.size() && l < model.layers.size(); ++l) {
    const LayerTimes& times = size.layers[l];
    table.add({model.layers[l].name, format_duration(times.f), format_duration(times.i),
               format_duration(times.w), format_duration(times.opt)});
  }
  table.add({"loss", format_duration(size.loss.f), format_duration(size.loss.i), "", ""});
  return "micro-batch size " + std::to_string(size.micro_batch_size) + "\n" + table.text(terminal);
}

}  // namespace

Cluster this_machine() {
  return cluster_preset("local-cpu", std::max(2, planner::cores_of_this_machine()));
}

std::vector<int> divisors_of(int batch) {
  std::vector<int> divisors;
  for (int d = 1; d <= batch && divisors.size() < kMostSizes; ++d) {
    if (batch % d == 0) divisors.push_back(d);
  }
  return divisors;
}

Profile measure(const Model& model, const Cluster& cluster, exec::ProfileOptions options,
                Session& session) {
  options.interrupted = &interrupt_flag();
  session.progress("measuring for about " + format_duration(Nanoseconds(options.budget_ns)) +
                   " ...");
  const InterruptScope scope;
  try {
    Profile profile = exec::measure_profile(model, cluster, options);
    session.clear_progress();
    InterruptScope::check();
    return profile;
  } catch (const RunError&) {
    InterruptScope::check();
    throw;
  }
}

std::string profile_text(const Profile& profile, const Model& model, const Terminal& terminal) {
  std::string text = profile.model_name + " on " + profile.cluster.name + ", " +
                     std::to_string(profile.ranks_measured) + " at once, " +
                     std::to_string(profile.repeats) + " or more steps" +
                     (profile.clock == ProfileClock::Cpu ? ", CPU time\n" : "\n");
  if (!profile.sizes.empty()) text += size_table(profile.sizes.front(), model, terminal);
  if (profile.sizes.size() > 1) text += size_table(profile.sizes.back(), model, terminal);
  const auto megabytes =
      static_cast<std::int64_t>(std::llround(profile.transfer_bytes_per_second / 1e6));
  return text + "transfer " + format_duration(profile.transfer_latency) + " + bytes at " +
         std::to_string(megabytes) + " MB/s; " + "the runtime's part of an action " +
         format_duration(profile.action_overhead) + "\n";
}

}  // namespace pipewright::tools
