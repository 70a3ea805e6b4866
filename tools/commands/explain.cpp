// pipewright explain: PyTorch's Flight Recorder dumps of a job that hangs, to a verdict.
#include <algorithm>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"
#include "core/order/call.hpp"
#include "core/program/verdict.hpp"
#include "sim/dumps/dump_files.hpp"
#include "sim/dumps/dump_text.hpp"
#include "sim/dumps/explanation_text.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostRows = 64;

/// What each rank did last, a row a rank; of very many the first.
std::string table_text(const sim::Explanation& explained, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"rank"}, {"calls", Align::Right}, {"ended", Align::Right}, {"waits in"}});
  for (std::size_t r = 0; r < std::min(explained.ranks.size(), kMostRows); ++r) {
    const sim::RankAtEnd& rank = explained.ranks[r];
    std::string waits = "-";
    if (!rank.waiting.empty()) {
      const sim::RecordedCall& call = explained.job.dumps[r].calls[rank.waiting.front()];
      waits = sim::call_name(call, explained.job.groups[call.group]);
      if (rank.waiting.size() > 1)
        waits += " and " + std::to_string(rank.waiting.size() - 1) + " behind it";
    }
    table.add(
        {std::to_string(r), std::to_string(rank.calls), std::to_string(rank.completed), waits});
  }
  return table.text(terminal);
}

/// "1=0,3" of --group.
sim::NamedRanks named_ranks(const Arguments& arguments) {
  sim::NamedRanks named;
  for (const std::string& text : arguments.all("--group")) {
    const std::size_t equals = text.rfind('=');
    if (equals == text.npos || equals == 0)
      throw InputError("--group: expected a name and ranks such as 1=0,3, found \"" + text + "\"");
    std::vector<RankId>& ranks = named[text.substr(0, equals)];
    for (const std::string& word : split_at_commas(text.substr(equals + 1)))
      ranks.emplace_back(parse_integer(word, "--group", 0, kMostGroupRanks - 1));
  }
  return named;
}

int run_explain(const Arguments& arguments, Session& session) {
  const sim::Explanation explained = sim::explain(
      sim::join_dumps(sim::read_dump_files(arguments.positionals()), named_ranks(arguments)));
  const bool good = explained.verdict() == Verdict::Ok;
  if (session.json()) {
    Json fields = verdict_fields(explained.program, explained.report, {});
    fields["dumps"] = to_json(explained);
    session.print_result(fields);
    return good ? kDone : kAnswerIsNo;
  }
  const Terminal& terminal = session.terminal();
  session.print(wrapped(title_of(explained), terminal.width, 0));
  session.print(painted(terminal, good ? Ink::Green : Ink::Red, verdict_title(explained.report)) +
                "\n");
  for (const std::string& line : reasons_of(explained))
    session.print(wrapped(line, terminal.width, line.starts_with(' ') ? 4 : 2));
  if (!good)
    session.print(painted(
        terminal, Ink::Dim,
        wrapped("judged with " + std::string(to_string(explained.guarantee)), terminal.width, 2)));
  session.print(table_text(explained, terminal));
  return good ? kDone : kAnswerIsNo;
}

}  // namespace

Command explain_command() {
  Command command;
  command.name = "explain";
  command.summary = "say why a PyTorch job hangs, from the dumps of its Flight Recorder";
  command.description =
      "Reads one dump of each rank, a pickle or JSON, as PyTorch writes it when a collective times "
      "out (TORCH_FR_DUMP_TEMP_FILE) or as torch._C._distributed_c10d gives it. A dump does not "
      "say whose it is: its name ends with the rank. The recorded calls become an order of calls, "
      "which is judged as check judges one: which ranks wait, in which call, who has not called "
      "it, or has called something else, and the cycle where there is one. Exit status 1: it "
      "hangs.";
  command.examples = {
      {"explain examples/hang", "the dumps in a folder; exits with 1"},
      {"explain examples/hang/rank0 examples/hang/rank1 examples/hang/rank2 --json",
       "by name, as JSON; exits with 1"},
  };
  command.positionals = {{.name = "DUMP",
                          .help = "a dump of each rank, or folders of them",
                          .least = 1,
                          .most = kAnyNumber}};
  command.flags = {{.group = "Dumps",
                    .name = "--group",
                    .argument = "NAME=RANKS",
                    .help =
                        "the ranks of a group, as 1=0,3, where the dumps do not say them (those "
                        "of gloo do not)",
                    .repeatable = true}};
  command.run = run_explain;
  return command;
}

}  // namespace pipewright::tools
