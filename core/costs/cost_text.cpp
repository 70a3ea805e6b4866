#include "core/costs/cost_text.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/int128.hpp"
#include "core/base/suggest.hpp"

namespace pipewright {
namespace {

/// "F=1,I=2" -> its keys and values, each key one of `known` (case ignored) and at most once.
std::map<std::string, std::string, std::less<>> read_pairs(
    std::string_view text, std::string_view flag, const std::vector<std::string_view>& known) {
  std::map<std::string, std::string, std::less<>> pairs;
  const auto fail = [&](const std::string& message) -> void {
    throw InputError(std::string(flag) + ": " + message);
  };
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      fail("expected KEY=VALUE, found \"" + std::string(item) + "\"");
    const std::string_view key = item.substr(0, equals);
    std::string_view canonical;
    for (const auto name : known) {
      const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
      };
      if (std::equal(key.begin(), key.end(), name.begin(), name.end(), same)) canonical = name;
    }
    if (canonical.empty())
      fail("unknown key \"" + std::string(key) + "\"" + did_you_mean(key, known));
    if (!pairs.emplace(std::string(canonical), std::string(item.substr(equals + 1))).second) {
      fail(std::string(canonical) + " is given twice");
    }
  }
  return pairs;
}

using Pairs = std::map<std::string, std::string, std::less<>>;

/// One value for all stages, or one for each with colons between.
template <class Amount, class Parse>
std::optional<std::vector<Amount>> values_of(const Pairs& pairs, std::string_view flag,
                                             std::string_view key, std::size_t stages,
                                             Parse parse) {
  const auto found = pairs.find(key);
  if (found == pairs.end()) return std::nullopt;
  const std::string what = std::string(flag) + " " + found->first;
  std::vector<Amount> values;
  std::string_view rest = found->second;
  while (true) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    values.push_back(parse(rest.substr(0, colon), what));
    if (colon == rest.size()) break;
    rest.remove_prefix(colon + 1);
  }
  if (values.size() == 1) values.resize(stages, values.front());
  if (values.size() != stages) {
    throw InputError(what + ": expected one value, or one for each of the " +
                     std::to_string(stages) + (flag.starts_with("--rank") ? " ranks" : " stages") +
                     ", found " + std::to_string(values.size()));
  }
  return values;
}

Pairs cost_pairs(std::string_view text, std::string_view flag) {
  return read_pairs(text, flag, {"F", "I", "W", "B", "FB", "OPT", "comm", "reduce", "unshard"});
}

/// Which of I, W and B a text names.
struct Named {
  bool i, w, b;
};

/// Keeps B = I + W in a stage where it held; `before` is the stage as it was.
void keep_fused(StageCosts& each, const StageCosts& before, const Named& named) {
  if (before.b != before.i + before.w) return;  // fused it takes a time of its own
  if (!named.b) {
    each.b = each.i + each.w;
  } else if (!named.i && !named.w) {
    const std::int64_t both = before.b.value;
    each.w = Nanoseconds(
        both > 0 ? static_cast<std::int64_t>(Int128{each.b.value} * before.w.value / both)
                 : each.b.value / 2);
    each.i = each.b - each.w;
  } else if (!named.i) {
    each.i = std::max(Nanoseconds(0), each.b - each.w);
  } else if (!named.w) {
    each.w = std::max(Nanoseconds(0), each.b - each.i);
  }
}

}  // namespace

CostTable parse_costs(std::string_view text, int stages, std::string_view flag) {
  CostTable table = CostTable::uniform(stages, {});
  change_costs(text, table, {.name = flag});
  return table;
}

std::vector<std::string> cost_keys(std::string_view text) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : cost_pairs(text, "--cost")) keys.push_back(key);
  return keys;
}

void change_costs(std::string_view text, CostTable& table, const CostFlag& flag) {
  const Pairs pairs = cost_pairs(text, flag.name);
  CostTable given = CostTable::uniform(
      flag.of_ranks ? flag.of_ranks->ranks() : static_cast<int>(table.stages.size()), {});
  const auto values = [&](std::string_view key, std::size_t size) {
    return values_of<Nanoseconds>(pairs, flag.name, key, size,
                                  [](std::string_view amount, const std::string& what) {
                                    return parse_duration(amount, what);
                                  });
  };
  std::vector<Nanoseconds StageCosts::*> fields;
  const auto read = [&](std::string_view key, Nanoseconds StageCosts::*field) {
    const auto list = values(key, given.stages.size());
    if (list) fields.push_back(field);
    for (std::size_t s = 0; list && s < list->size(); ++s) given.stages[s].*field = (*list)[s];
    return list.has_value();
  };
  read("F", &StageCosts::f);
  const Named named{.i = read("I", &StageCosts::i),
                    .w = read("W", &StageCosts::w),
                    .b = read("B", &StageCosts::b)};
  read("OPT", &StageCosts::opt);
  read("reduce", &StageCosts::reduce);
  read("unshard", &StageCosts::unshard);
  const auto pair = values("FB", 1);
  if (pair) given.overlapped_pair = pair->front();
  if (flag.of_ranks) given = resampled(given, *flag.of_ranks);

  for (std::size_t s = 0; s < table.stages.size(); ++s) {
    const StageCosts before = table.stages[s];
    for (const auto field : fields) table.stages[s].*field = given.stages[s].*field;
    keep_fused(table.stages[s], before, named);
  }
  if (pair) table.overlapped_pair = given.overlapped_pair;
  if (const auto latency = values("comm", 1)) {
    table.every_route.latency = latency->front();
    for (RouteCosts& route : table.route_of_edge) route.latency = latency->front();
  }
}

Bytes parse_memory(std::string_view text, CostTable& table, const CostFlag& flag) {
  const Pairs pairs = read_pairs(text, flag.name, {"F", "I", "W", "constant", "version", "limit"});
  const auto values = [&](std::string_view key, std::size_t size) {
    return values_of<Bytes>(pairs, flag.name, key, size,
                            [](std::string_view amount, const std::string& what) {
                              const bool negative = !amount.empty() && amount.front() == '-';
                              if (negative) amount.remove_prefix(1);
                              const Bytes bytes = parse_bytes(amount, what);
                              return negative ? Bytes(-bytes.value) : bytes;
                            });
  };
  const auto limit = values("limit", 1);
  if (limit && pairs.size() == 1 && table.memory.empty()) {
    throw InputError(
        std::string(flag.name) + " limit=" + pairs.at("limit") +
        ": nothing here says what a stage holds, so the limit cannot be checked; add F=.. "
        "(what an activation takes) or constant=.., or give a plan.json");
  }
  CostTable given = CostTable::uniform(
      flag.of_ranks ? flag.of_ranks->ranks() : static_cast<int>(table.stages.size()), {});
  given.memory.resize(given.stages.size());
  std::vector<Bytes StageMemory::*> fields;
  const auto read = [&](std::string_view key, Bytes StageMemory::*field) {
    const auto list = values(key, given.memory.size());
    if (list) fields.push_back(field);
    for (std::size_t s = 0; list && s < list->size(); ++s) given.memory[s].*field = (*list)[s];
    return list.has_value();
  };
  read("F", &StageMemory::f);
  read("I", &StageMemory::i);
  const bool named_w = read("W", &StageMemory::w);
  read("constant", &StageMemory::constant);
  read("version", &StageMemory::version);
  if (flag.of_ranks) given = resampled(given, *flag.of_ranks);

  table.memory.resize(table.stages.size());
  for (std::size_t s = 0; s < table.memory.size(); ++s) {
    StageMemory& each = table.memory[s];
    // What F took and I did not give back goes at W.
    const auto left = [](const StageMemory& m) { return Bytes(-m.f.value - m.i.value); };
    const bool goes_at_w = !named_w && each.w == left(each);
    for (const auto field : fields) each.*field = given.memory[s].*field;
    if (goes_at_w) each.w = left(each);
  }
  return limit ? limit->front() : Bytes(0);
}

namespace {

std::int64_t quotient_up(Int128 dividend, std::int64_t divisor) {
  const Int128 down = dividend / divisor;
  return static_cast<std::int64_t>(down * divisor < dividend ? down + 1 : down);
}

/// A model of `whole` stages, each the same all along, cut into `placement`'s.
class Cut {
 public:
  Cut(const CostTable& whole, const Placement& placement)
      : from_(static_cast<std::int64_t>(whole.stages.size())), placement_(placement) {}

  /// The sum over the pieces of old stages that new stage b has, times the number of new stages.
  template <class ValueOf>
  Int128 sum(std::int64_t b, ValueOf value_of) const {
    // In units of 1/(from * to) of the model, old stage a is [a*to, (a+1)*to) and new stage b is
    // [b*from, (b+1)*from).
    Int128 sum = 0;
    for (std::int64_t a = b * from_ / to(); a < from_ && a * to() < (b + 1) * from_; ++a) {
      const std::int64_t shared =
          std::min((a + 1) * to(), (b + 1) * from_) - std::max(a * to(), b * from_);
      sum += static_cast<Int128>(value_of(static_cast<std::size_t>(a))) * shared;
    }
    return sum;
  }

  /// By new stage. What a rank's stages have together is rounded up once, and its earlier stages
  /// take the longer pieces, so that cutting never makes a rank's work shorter.
  template <class ValueOf>
  std::vector<Nanoseconds> times(ValueOf value_of) const {
    std::vector<Int128> so_far(static_cast<std::size_t>(placement_.ranks()), 0);
    std::vector<Nanoseconds> times;
    for (std::int64_t b = 0; b < to(); ++b) {
      const RankId rank = placement_.rank_of(StageId(static_cast<int>(b)), MicroBatchId(0));
      Int128& together = so_far[static_cast<std::size_t>(rank.value)];
      const std::int64_t before = quotient_up(together, to());
      together += sum(b, value_of);
      times.emplace_back(quotient_up(together, to()) - before);
    }
    return times;
  }

  /// Rounded up: a piece never holds less than it does.
  template <class ValueOf>
  Bytes bytes(std::int64_t b, ValueOf value_of) const {
    return Bytes(quotient_up(sum(b, value_of), to()));
  }

  std::int64_t from() const { return from_; }
  std::int64_t to() const { return placement_.stages(); }

 private:
  std::int64_t from_;
  const Placement& placement_;
};

void cut_times(const Cut& cut, const CostTable& whole, CostTable& table) {
  for (Nanoseconds StageCosts::*const field :
       {&StageCosts::f, &StageCosts::i, &StageCosts::w, &StageCosts::b, &StageCosts::opt,
        &StageCosts::reduce, &StageCosts::unshard}) {
    const auto times = cut.times([&](std::size_t a) { return (whole.stages[a].*field).value; });
    for (std::size_t b = 0; b < times.size(); ++b) table.stages[b].*field = times[b];
  }
  const bool sums = std::all_of(whole.stages.begin(), whole.stages.end(),
                                [](const StageCosts& s) { return s.b == s.i + s.w; });
  for (StageCosts& each : table.stages) {
    if (sums) each.b = each.i + each.w;
  }
}

StageMemory cut_memory(const Cut& cut, const CostTable& whole, std::int64_t b) {
  const auto field = [&](Bytes StageMemory::*of) {
    return cut.bytes(b, [&](std::size_t a) { return (whole.memory[a].*of).value; });
  };
  // What is held after F, after I and after W.
  const Bytes held = field(&StageMemory::f);
  const Bytes kept = cut.bytes(
      b, [&](std::size_t a) { return whole.memory[a].f.value + whole.memory[a].i.value; });
  const Bytes left = cut.bytes(b, [&](std::size_t a) {
    return whole.memory[a].f.value + whole.memory[a].i.value + whole.memory[a].w.value;
  });
  return {.f = held,
          .i = kept - held,
          .w = left - kept,
          .constant = field(&StageMemory::constant),
          .in_f = field(&StageMemory::in_f),
          .in_i = field(&StageMemory::in_i),
          .in_w = field(&StageMemory::in_w),
          .in_b = field(&StageMemory::in_b),
          .version = field(&StageMemory::version)};
}

}  // namespace

void set_message_bytes(std::string_view text, CostTable& table, std::string_view flag) {
  const Bytes each = parse_bytes(text, flag);
  if (each.value < 1) {
    throw InputError(std::string(flag) + ": expected at least 1 byte, found \"" +
                     std::string(text) + "\"");
  }
  const std::size_t boundaries = table.stages.empty() ? 0 : table.stages.size() - 1;
  table.activation_bytes.assign(boundaries, each);
  table.gradient_bytes.assign(boundaries, each);
}

CostTable resampled(const CostTable& whole, const Placement& placement) {
  const Cut cut(whole, placement);
  const auto stages = static_cast<std::size_t>(placement.stages());
  if (cut.from() == cut.to()) return whole;
  CostTable table = whole;
  table.stages.assign(stages, {});
  cut_times(cut, whole, table);
  table.memory.clear();
  for (std::int64_t b = 0; b < cut.to() && !whole.memory.empty(); ++b)
    table.memory.push_back(cut_memory(cut, whole, b));
  table.overlapped_pair = Nanoseconds(
      quotient_up(static_cast<Int128>(whole.overlapped_pair.value) * cut.from(), cut.to()));
  return table;
}

bool cut_is_rough(const CostTable& whole, int stages) {
  const auto from = static_cast<std::int64_t>(whole.stages.size()), to = std::int64_t{stages};
  const auto rough = [&](std::int64_t value) {
    const Int128 all = static_cast<Int128>(value < 0 ? -value : value) * from;
    return all % to != 0 && all < static_cast<Int128>(100) * to;
  };
  const auto& times = whole.stages;
  const auto& memory = whole.memory;
  return std::any_of(times.begin(), times.end(),
                     [&](const StageCosts& s) {
                       return rough(s.f.value) || rough(s.i.value) || rough(s.w.value) ||
                              rough(s.b.value);
                     }) ||
         std::any_of(memory.begin(), memory.end(), [&](const StageMemory& m) {
           return rough(m.f.value) || rough(m.i.value) || rough(m.w.value) ||
                  rough(m.constant.value);
         });
}

CostTable resampled(const CostTable& whole, int stages) {
  return resampled(whole, Placement::loop(stages, 1));
}

}  // namespace pipewright
