#include "sim/dumps/explanation_text.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/count_of.hpp"
#include "sim/dumps/dump_text.hpp"

namespace pipewright::sim {
namespace {

constexpr std::size_t kMostStandstills = 8, kMostWaiting = 8;

/// The sentences of one explanation.
class Sentences {
 public:
  explicit Sentences(const Explanation& explained) : explained_(explained), job_(explained.job) {}

  std::vector<std::string> of_hang() {
    const auto& all = explained_.standstills;
    for (std::size_t i = 0; i < std::min(all.size(), kMostStandstills); ++i)
      all[i].differ.empty() ? add_missing(all[i]) : add_different(all[i]);
    if (all.size() > kMostStandstills)
      add("and " + std::to_string(all.size() - kMostStandstills) + " more that cannot happen");
    for (const CallWait& wait : explained_.cycle) add_wait(wait);
    for (const RankId rank : explained_.absent) add_absent(rank);
    for (const Shift& shift : explained_.shifts) add_shift(shift);
    add_assumed();
    return std::move(lines_);
  }

  std::vector<std::string> of_running() {
    std::size_t waiting = 0;
    for (const RankAtEnd& rank : explained_.ranks) waiting += rank.waiting.size();
    if (waiting == 0) return {"every call has ended"};
    add(count_of(static_cast<std::int64_t>(waiting), "call") +
        " had not ended when the dumps were written, and nothing in the order of calls keeps " +
        (waiting == 1 ? "it" : "them") +
        " from ending: look at what lies below (the network, the device), or dump again later");
    std::size_t shown = 0;
    for (std::size_t r = 0; r < explained_.ranks.size(); ++r) {
      for (const std::size_t at : explained_.ranks[r].waiting) {
        if (shown++ == kMostWaiting) return std::move(lines_);
        add("rank " + std::to_string(r) + ": " + text({RankId(static_cast<int>(r)), at}));
      }
    }
    return std::move(lines_);
  }

 private:
  void add(std::string line) { lines_.push_back(std::move(line)); }

  const RecordedCall& call(const CallRef& ref) const { return call_at(job_, ref); }
  std::string text(const CallRef& ref) const {
    return call_text(call(ref), job_.groups[call(ref).group]);
  }
  std::string name(const CallRef& ref) const {
    return call_name(call(ref), job_.groups[call(ref).group]);
  }

  /// Ranks whose calls read alike, with the first of these; in the order of the first rank.
  std::vector<std::pair<std::vector<RankId>, CallRef>> alike(
      const std::vector<CallRef>& calls) const {
    std::vector<std::pair<std::vector<RankId>, CallRef>> sets;
    std::map<std::string, std::size_t> set_of;
    for (const CallRef& ref : calls) {
      const auto [known, is_new] = set_of.try_emplace(text(ref), sets.size());
      if (is_new) sets.push_back({{}, ref});
      sets[known->second].first.push_back(ref.rank);
    }
    return sets;
  }

  void add_missing(const Standstill& stands) {
    for (const auto& [ranks, ref] : alike(stands.calls)) {
      add(ranks_text(ranks) + (ranks.size() == 1 ? " waits in " : " wait in ") + text(ref) +
          ", for " + ranks_text(stands.missing) + ", which " +
          (stands.missing.size() == 1 ? "has" : "have") + " not called it");
    }
  }

  void add_different(const Standstill& stands) {
    const std::string what = stands.differ == "kind" || stands.differ == "data" ? "operation"
                             : stands.differ == "shape"                         ? "size"
                                                                                : stands.differ;
    add("calls that meet differ in " + what + ":");
    for (const auto& [ranks, ref] : alike(stands.calls))
      add("  " + ranks_text(ranks) + ": " + text(ref));
    if (!stands.missing.empty()) add("  " + ranks_text(stands.missing) + ": no call");
  }

  void add_wait(const CallWait& wait) {
    std::string line = "rank " + std::to_string(wait.waits.rank.value) + " waits in " +
                       name(wait.waits) + " for rank " + std::to_string(wait.waits_for.value);
    if (!wait.behind) {
      line += ", which stands in another call and has not come to it";
    } else if (wait.behind->rank == wait.waits_for) {
      line += ", whose call stands behind " + name(*wait.behind);
    }
    add("cycle: " + line);
  }

  void add_absent(RankId rank) {
    const RankAtEnd& at_end = explained_.ranks[static_cast<std::size_t>(rank.value)];
    std::string line = "rank " + std::to_string(rank.value) + " waits in no call: ";
    if (!at_end.last_completed) {
      line += "it has made none";
    } else {
      line += "the last of its " + std::to_string(at_end.calls) + " is " +
              text({rank, *at_end.last_completed});
    }
    add(line);
  }

  void add_shift(const Shift& shift) {
    const std::string rank = "rank " + std::to_string(shift.call.rank.value);
    const std::string other = "rank " + std::to_string(shift.others.rank.value);
    add(shift.left_out ? rank + " seems to have left out " + text(shift.others) +
                             ": what it calls " + "there, " + other + " calls next"
                       : rank + " seems to have one call too many, " + text(shift.call) +
                             ": next it calls what " + other + " calls there");
  }

  void add_assumed() {
    std::string names;
    std::size_t count = 0;
    for (const Standstill& stands : explained_.standstills) {
      const RecordedGroup& group = job_.groups[call(stands.calls.front()).group];
      if (group.members != Members::Assumed) continue;
      names += (names.empty() ? " " : " and ") + group.name;
      ++count;
    }
    if (count == 0) return;
    add("who is in " + std::string(count == 1 ? "group" : "groups") + names +
        " the dumps do not say; all ranks are taken to be (name them with --group NAME=0,1)");
  }

  const Explanation& explained_;
  const DumpedJob& job_;
  std::vector<std::string> lines_;
};

Json call_json(const DumpedJob& job, const CallRef& ref) {
  const RecordedCall& call = call_at(job, ref);
  const RecordedGroup& group = job.groups[call.group];
  Json json = {{"rank", ref.rank.value},
               {"record", call.record},
               {"operation", call.operation},
               {"group", group.name},
               {"description", group.description},
               {"number", call.number},
               {"input_sizes", call.inputs.sizes},
               {"output_sizes", call.outputs.sizes},
               {"types", call.inputs.types.empty() ? call.outputs.types : call.inputs.types},
               {"state", std::string(to_string(call.state))},
               {"place", call.place}};
  if (call.is_transfer) {
    json["from"] = group.ranks[static_cast<std::size_t>(call.source)].value;
    json["to"] = group.ranks[static_cast<std::size_t>(call.destination)].value;
  }
  return json;
}

Json calls_json(const DumpedJob& job, const std::vector<CallRef>& refs) {
  Json calls = Json::array();
  for (const CallRef& ref : refs) calls.push_back(call_json(job, ref));
  return calls;
}

Json numbers_of(const std::vector<RankId>& ranks) {
  Json numbers = Json::array();
  for (const RankId rank : ranks) numbers.push_back(rank.value);
  return numbers;
}

Json standstills_json(const Explanation& explained) {
  Json list = Json::array();
  for (const Standstill& stands : explained.standstills) {
    list.push_back({{"calls", calls_json(explained.job, stands.calls)},
                    {"missing", numbers_of(stands.missing)},
                    {"differ", stands.differ}});
  }
  return list;
}

Json cycle_json(const Explanation& explained) {
  Json list = Json::array();
  for (const CallWait& wait : explained.cycle) {
    list.push_back({{"call", call_json(explained.job, wait.waits)},
                    {"waits_for", wait.waits_for.value},
                    {"behind", wait.behind ? call_json(explained.job, *wait.behind) : Json()}});
  }
  return list;
}

Json ranks_json(const Explanation& explained) {
  Json list = Json::array();
  for (std::size_t r = 0; r < explained.ranks.size(); ++r) {
    const RankAtEnd& rank = explained.ranks[r];
    const auto ref = [&](std::size_t at) { return CallRef{RankId(static_cast<int>(r)), at}; };
    std::vector<CallRef> waiting;
    std::ranges::transform(rank.waiting, std::back_inserter(waiting), ref);
    list.push_back(
        {{"rank", r},
         {"calls", rank.calls},
         {"completed", rank.completed},
         {"last_completed",
          rank.last_completed ? call_json(explained.job, ref(*rank.last_completed)) : Json()},
         {"waiting", calls_json(explained.job, waiting)}});
  }
  return list;
}

}  // namespace

std::string title_of(const Explanation& explained) {
  std::set<std::string> backends;
  std::int64_t calls = 0;
  for (const Dump& dump : explained.job.dumps) {
    calls += static_cast<std::int64_t>(dump.calls.size());
    for (const RecordedCall& call : dump.calls) backends.insert(call.backend);
  }
  const auto ranks = static_cast<std::int64_t>(explained.job.dumps.size()),
             groups = static_cast<std::int64_t>(explained.job.groups.size());
  const std::string text =
      count_of(ranks, "rank") + ", " + count_of(groups, "group") + ", " + count_of(calls, "call");
  std::string names;
  for (const std::string& backend : backends) names += (names.empty() ? "" : ", ") + backend;
  return names.empty() ? text : text + " (" + names + ")";
}

std::vector<std::string> reasons_of(const Explanation& explained) {
  Sentences sentences(explained);
  return explained.verdict() == Verdict::Ok ? sentences.of_running() : sentences.of_hang();
}

Json to_json(const Explanation& explained) {
  Json shifts = Json::array();
  for (const Shift& shift : explained.shifts) {
    shifts.push_back({{"call", call_json(explained.job, shift.call)},
                      {"others", call_json(explained.job, shift.others)},
                      {"left_out", shift.left_out}});
  }
  return {{"verdict", std::string(to_string(explained.verdict()))},
          {"guarantee", std::string(to_string(explained.guarantee))},
          {"standstills", standstills_json(explained)},
          {"waits", cycle_json(explained)},
          {"absent", numbers_of(explained.absent)},
          {"shifts", shifts},
          {"at_end", ranks_json(explained)},
          {"reasons", reasons_of(explained)}};
}

}  // namespace pipewright::sim
