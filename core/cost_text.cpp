#include "core/cost_text.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/suggest.hpp"

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
                     std::to_string(stages) + " stages, found " + std::to_string(values.size()));
  }
  return values;
}

Pairs cost_pairs(std::string_view text) {
  return read_pairs(text, "--cost", {"F", "I", "W", "B", "FB", "OPT", "comm", "reduce", "unshard"});
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
    __extension__ using Wide = __int128;
    const std::int64_t both = before.b.value;
    each.w =
        Nanoseconds(both > 0 ? static_cast<std::int64_t>(Wide{each.b.value} * before.w.value / both)
                             : each.b.value / 2);
    each.i = each.b - each.w;
  } else if (!named.i) {
    each.i = std::max(Nanoseconds(0), each.b - each.w);
  } else if (!named.w) {
    each.w = std::max(Nanoseconds(0), each.b - each.i);
  }
}

}  // namespace

CostTable parse_costs(std::string_view text, int stages) {
  CostTable table = CostTable::uniform(stages, {});
  change_costs(text, table);
  return table;
}

std::vector<std::string> cost_keys(std::string_view text) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : cost_pairs(text)) keys.push_back(key);
  return keys;
}

void change_costs(std::string_view text, CostTable& table) {
  const Pairs pairs = cost_pairs(text);
  const auto values = [&](std::string_view key, std::size_t size) {
    return values_of<Nanoseconds>(pairs, "--cost", key, size,
                                  [](std::string_view amount, const std::string& what) {
                                    return parse_duration(amount, what);
                                  });
  };
  const auto set = [&](std::string_view key, Nanoseconds StageCosts::*field) {
    const auto list = values(key, table.stages.size());
    for (std::size_t s = 0; list && s < list->size(); ++s) table.stages[s].*field = (*list)[s];
    return list.has_value();
  };
  const std::vector<StageCosts> before = table.stages;
  set("F", &StageCosts::f);
  const Named named{
      .i = set("I", &StageCosts::i), .w = set("W", &StageCosts::w), .b = set("B", &StageCosts::b)};
  for (std::size_t s = 0; s < before.size(); ++s) keep_fused(table.stages[s], before[s], named);
  set("OPT", &StageCosts::opt);
  set("reduce", &StageCosts::reduce);
  set("unshard", &StageCosts::unshard);
  if (const auto pair = values("FB", 1)) table.overlapped_pair = pair->front();
  if (const auto latency = values("comm", 1)) {
    table.every_route.latency = latency->front();
    for (RouteCosts& route : table.route_of_edge) route.latency = latency->front();
  }
}

Bytes parse_memory(std::string_view text, CostTable& table) {
  const Pairs pairs = read_pairs(text, "--mem", {"F", "I", "W", "constant", "version", "limit"});
  const auto values = [&](std::string_view key, std::size_t size) {
    return values_of<Bytes>(pairs, "--mem", key, size,
                            [](std::string_view amount, const std::string& what) {
                              const bool negative = !amount.empty() && amount.front() == '-';
                              if (negative) amount.remove_prefix(1);
                              const Bytes bytes = parse_bytes(amount, what);
                              return negative ? Bytes(-bytes.value) : bytes;
                            });
  };
  const auto limit = values("limit", 1);
  if (limit && pairs.size() == 1 && table.memory.empty()) {
    throw InputError("--mem limit=" + pairs.at("limit") +
                     ": nothing here says what a stage holds, so nothing can be over it; add F=.. "
                     "(what an activation takes) or constant=.., or give a plan.json, which says "
                     "it");
  }
  table.memory.resize(table.stages.size());
  const std::vector<StageMemory> before = table.memory;
  const auto set = [&](std::string_view key, Bytes StageMemory::*field) {
    const auto list = values(key, table.memory.size());
    for (std::size_t s = 0; list && s < list->size(); ++s) table.memory[s].*field = (*list)[s];
    return list.has_value();
  };
  set("F", &StageMemory::f);
  set("I", &StageMemory::i);
  const bool named_w = set("W", &StageMemory::w);
  for (std::size_t s = 0; s < before.size() && !named_w; ++s) {
    // What F took and I did not give back goes at W.
    const auto left = [](const StageMemory& m) { return Bytes(-m.f.value - m.i.value); };
    if (before[s].w == left(before[s])) table.memory[s].w = left(table.memory[s]);
  }
  set("constant", &StageMemory::constant);
  set("version", &StageMemory::version);
  return limit ? limit->front() : Bytes(0);
}

CostTable resampled(const CostTable& whole, int stages) {
  const auto from = static_cast<std::int64_t>(whole.stages.size()), to = std::int64_t{stages};
  CostTable table = whole;
  table.stages.assign(static_cast<std::size_t>(stages), {});
  if (!whole.memory.empty()) table.memory.assign(static_cast<std::size_t>(stages), {});
  // In units of 1/(from * to) of the model, old stage a is [a*to, (a+1)*to) and new stage b is
  // [b*from, (b+1)*from).
  for (std::int64_t b = 0; b < to; ++b) {
    const auto part = [&](auto value_of) {
      __extension__ using Wide = __int128;
      Wide sum = 0;
      for (std::int64_t a = b * from / to; a < from && a * to < (b + 1) * from; ++a) {
        const std::int64_t shared =
            std::min((a + 1) * to, (b + 1) * from) - std::max(a * to, b * from);
        sum += static_cast<Wide>(value_of(static_cast<std::size_t>(a))) * shared;
      }
      return static_cast<std::int64_t>(sum / to);
    };
    const auto time = [&](Nanoseconds StageCosts::*field) {
      return Nanoseconds(part([&](std::size_t a) { return (whole.stages[a].*field).value; }));
    };
    const auto place = static_cast<std::size_t>(b);
    table.stages[place] = {.f = time(&StageCosts::f),
                           .i = time(&StageCosts::i),
                           .w = time(&StageCosts::w),
                           .b = time(&StageCosts::b),
                           .opt = time(&StageCosts::opt),
                           .reduce = time(&StageCosts::reduce),
                           .unshard = time(&StageCosts::unshard)};
    if (whole.memory.empty()) continue;
    const auto bytes = [&](Bytes StageMemory::*field) {
      return Bytes(part([&](std::size_t a) { return (whole.memory[a].*field).value; }));
    };
    table.memory[place] = {.f = bytes(&StageMemory::f),
                           .i = bytes(&StageMemory::i),
                           .w = bytes(&StageMemory::w),
                           .constant = bytes(&StageMemory::constant),
                           .in_f = bytes(&StageMemory::in_f),
                           .in_i = bytes(&StageMemory::in_i),
                           .in_w = bytes(&StageMemory::in_w),
                           .in_b = bytes(&StageMemory::in_b),
                           .version = bytes(&StageMemory::version)};
  }
  table.overlapped_pair = Nanoseconds(whole.overlapped_pair.value * from / to);
  return table;
}

}  // namespace pipewright
