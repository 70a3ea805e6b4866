// pipewright schedules list | show | export.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/order_json.hpp"
#include "core/program/lower.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/megatron_exchange.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/synthesis.hpp"
#include "tools/output/timeline_text.hpp"

namespace pipewright::tools {
namespace {

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const auto word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

Json fields_of(const planner::Schedule& schedule) {
  return {{"name", schedule.name},
          {"aliases", schedule.aliases},
          {"summary", schedule.text.summary},
          {"constraint", schedule.text.constraint},
          {"bubble", schedule.text.bubble},
          {"memory", schedule.text.memory},
          {"source", schedule.text.source},
          {"parameters", schedule.parameters},
          {"splits_backward", schedule.traits.splits_backward},
          {"default_vpp", schedule.default_chunks},
          {"placement", std::string(planner::to_string(schedule.layout))},
          {"cost_driven", schedule.traits.cost_driven},
          {"asynchronous", schedule.traits.asynchronous}};
}

std::string placement_text(const planner::Schedule& schedule) {
  std::string text(planner::to_string(schedule.layout));
  if (schedule.traits.cost_driven) text += "; the order depends on --cost and --mem";
  if (schedule.traits.asynchronous) text += "; updates inside the step, weight versions";
  return text;
}

/// The table of docs/schedules.md.
std::string markdown_table() {
  std::string text =
      "| name (aliases) | placement | needs | bubble | live activations on rank r | source |\n"
      "|---|---|---|---|---|---|\n";
  // A bar inside a cell would end it.
  const auto cell = [](std::string words) {
    for (std::size_t at = 0; (at = words.find('|', at)) != words.npos; at += 2) {
      words.insert(at, 1, '\\');
    }
    return " " + words + " |";
  };
  for (const auto& schedule : planner::schedules()) {
    std::string name = "`" + std::string(schedule.name) + "`";
    if (!schedule.aliases.empty()) name += " (" + joined(schedule.aliases) + ")";
    text += "|" + cell(name) + cell(placement_text(schedule)) +
            cell(std::string(schedule.text.constraint)) + cell(std::string(schedule.text.bubble)) +
            cell(std::string(schedule.text.memory)) + cell(std::string(schedule.text.source)) +
            "\n";
  }
  return text;
}

int run_list(const Arguments& arguments, Session& session) {
  if (arguments.has("--markdown")) {
    session.print(markdown_table());
    return kDone;
  }
  if (session.json()) {
    Json list = Json::array();
    for (const auto& schedule : planner::schedules()) list.push_back(fields_of(schedule));
    session.print_result({{"schedules", list}});
    return kDone;
  }
  for (const auto& schedule : planner::schedules()) {
    std::string name(schedule.name);
    if (!schedule.aliases.empty()) name += "  (" + joined(schedule.aliases) + ")";
    session.print(painted(session.terminal(), Ink::Bold, name) + "\n");
    session.print(wrapped(schedule.text.summary, session.terminal().width, 4));
    session.print(wrapped("bubble " + std::string(schedule.text.bubble) + "; peak activations " +
                              std::string(schedule.text.memory),
                          session.terminal().width, 4));
  }
  session.note("next: pipewright schedules show NAME");
  return kDone;
}

std::string order_text(const Order& order) {
  std::string text;
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    text += "rank " + std::to_string(r) + "  ";
    for (const Cell& cell : order.ranks[r]) text += to_string(cell) + " ";
    text.back() = '\n';
  }
  return text;
}

void print_card(const planner::Schedule& schedule, Session& session) {
  session.print(painted(session.terminal(), Ink::Bold, schedule.name) + "\n");
  const auto line = [&](std::string_view what, const std::string& value) {
    if (value.empty()) return;
    std::string label = "  " + std::string(what);
    label.append(14 - label.size(), ' ');
    const std::string body = wrapped(value, session.terminal().width, 14);
    session.print(label + (body.size() > 14 ? body.substr(14) : "\n"));
  };
  line("what", std::string(schedule.text.summary));
  line("also", joined(schedule.aliases));
  line("needs", std::string(schedule.text.constraint));
  line("bubble", std::string(schedule.text.bubble));
  line("peak", std::string(schedule.text.memory) + " activations on rank r");
  line("placement", placement_text(schedule));
  line("parameters", joined(schedule.parameters));
  line("source", std::string(schedule.text.source));
}

/// Sizes to draw where the user names none: 4 ranks and 8 micro-batches, or close to that.
planner::ScheduleRequest drawn_request(const planner::Schedule& schedule) {
  planner::ScheduleRequest request;
  request.chunks = schedule.default_chunks;
  for (const int ranks : {4, 2, 3, 6, 8, 1}) {
    for (const int micro_batches : {8, 4, 12, 16, 6, 2, 1}) {
      request.ranks = ranks;
      request.micro_batches = micro_batches;
      if (!planner::refusal_of(schedule, request)) return request;
    }
  }
  return request;
}

planner::ScheduleRequest request_of(const Arguments& arguments, const planner::Schedule& schedule) {
  const bool sized = arguments.has("--pp") || arguments.has("--micro-batches");
  planner::ScheduleRequest request =
      sized ? schedule_request(arguments, schedule) : drawn_request(schedule);
  if (!sized && arguments.has("--vpp")) {
    throw InputError("--vpp needs --pp P and --micro-batches M beside it");
  }
  add_costs(request, schedule, arguments);
  return request;
}

/// The timeline of the order under the papers' model, and its figures.
void draw(const planner::Schedule& schedule, const planner::ScheduleRequest& request,
          const Order& order, const Arguments& arguments, Session& session) {
  const GivenCosts costs = given_costs(arguments, order.placement, costs_of(request));
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs.table);
  std::string title =
      "\np=" + std::to_string(request.ranks) + " m=" + std::to_string(request.micro_batches);
  if (request.chunks > 1) title += " v=" + std::to_string(request.chunks);
  title += ", a stage: " + costs_text(costs.table) + assumed_text(arguments);
  session.print("\n" + wrapped(title, session.terminal().width, 0));
  if (!result.finished) {
    session.print("this order gets stuck; see pipewright check --schedule " +
                  std::string(schedule.name) + "\n");
    return;
  }
  const Figures figures = figures_of(program, result.timeline, costs.table);
  session.print(
      timeline_text(program, result.timeline, session.terminal().width, session.terminal()));
  std::string peaks;
  for (const RankFigures& rank : figures.ranks) {
    peaks += (peaks.empty() ? "" : " ") + std::to_string(rank.peak_activations);
  }
  session.print("step " + format_duration(Nanoseconds(figures.makespan_ns)) + "   bubble " +
                percent_text(figures.bubble_ratio) + "   bubble in the span " +
                percent_text(figures.span_bubble_ratio) + "\n");
  session.print(wrapped("peak activations by rank: " + peaks, session.terminal().width, 0));
}

int run_show(const Arguments& arguments, Session& session) {
  const auto& schedule = named_schedule(arguments.positionals().front(), session);
  const planner::ScheduleRequest request = request_of(arguments, schedule);
  const Order order = make_requested(schedule, request, arguments, session);
  if (session.json()) {
    Json fields = fields_of(schedule);
    fields["ranks"] = request.ranks;
    fields["micro_batches"] = request.micro_batches;
    fields["vpp"] = request.chunks;
    fields["order"] = rows_json(order);
    session.print_result(fields);
    return kDone;
  }
  print_card(schedule, session);
  draw(schedule, request, order, arguments, session);
  if (arguments.has("--order")) session.print("\n" + order_text(order));
  session.note("next: pipewright schedules show " + std::string(schedule.name) +
               " -p 8 -m 32 --order   (other sizes, and the order as text)");
  return kDone;
}

/// With its transfers and, for PyTorch, all that the release's runtime takes from the file alone.
Order listed_actions(const Order& order, const Arguments& arguments, Session& session) {
  const bool as_json = arguments.text("--format") == "json";
  const std::string name = arguments.text_or("--torch", as_json ? "none" : "2.13");
  const auto release = planner::torch_release(name);
  if (!release) return with_transfers(order);
  if (const auto refusal = planner::torch_refusal_of(order)) {
    throw InputError(*refusal + ", or --torch none for the order with its transfers alone");
  }
  session.note(
      "note: the actions are for PyTorch " + name +
      ", which loads them with _load_csv(file, format=\"compute_comms\") and adds nothing; "
      "--torch names another release");
  return planner::torch_actions(order, *release);
}

int run_export(const Arguments& arguments, Session& session) {
  const auto& schedule = named_schedule(arguments.positionals().front(), session);
  planner::ScheduleRequest request = schedule_request(arguments, schedule);
  add_costs(request, schedule, arguments);
  Order order = make_requested(schedule, request, arguments, session);
  if (arguments.has("--torch") && !arguments.has("--comms")) {
    throw InputError("--torch says what --comms writes; give --comms beside it");
  }
  if (const auto exchange = asked_exchange(arguments)) {
    if (arguments.has("--comms"))
      throw InputError("--comms lists PyTorch's transfers and --megatron Megatron-LM's; give one");
    order = megatron_list(order, *exchange);
  }
  if (arguments.has("--comms")) order = listed_actions(order, arguments, session);
  const bool as_json = arguments.text("--format") == "json";
  const std::string file = as_json ? to_text(to_json(order)) : write_order_csv(order);
  if (const auto path = arguments.text("--out")) {
    session.save(*path, file);
    session.wrote(*path);
  }
  if (session.json()) {
    session.print_result({{"schedule", schedule.name}, {"order", rows_json(order)}});
  } else if (!arguments.has("--out")) {
    session.print(file);
  }
  return kDone;
}

Positional schedule_name() {
  Positional name{.name = "NAME",
                  .help = "a schedule's name or alias, in any case",
                  .least = 1,
                  .most = 1,
                  .is_file = false};
  for (const auto& schedule : planner::schedules()) name.choices.emplace_back(schedule.name);
  return name;
}

Command list_command() {
  Command command;
  command.name = "schedules list";
  command.examples = {{"schedules list", "what there is"}};
  command.summary = "list the schedules with their closed forms";
  command.flags = {{.group = "Output",
                    .name = "--markdown",
                    .help = "as a table for a document, with constraints and sources"}};
  command.run = run_list;
  return command;
}

Command show_command() {
  Command command;
  command.name = "schedules show";
  command.summary = "show one schedule: constraint, formula, memory, source, and its timeline";
  command.description =
      "The timeline is drawn under the preset ideal, the papers' model; without sizes for 4 ranks "
      "and 8 micro-batches, or the nearest that the schedule admits.";
  command.examples = {{"schedules show zb-h1", "what it needs, what it costs, how it looks"},
                      {"schedules show 1f1b -p 4 -m 8 --order", "and its order as text"}};
  command.positionals = {schedule_name()};
  command.flags = schedule_flags();
  for (auto& flag : cost_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back(
      {.group = "Output", .name = "--order", .help = "the actions of each rank too"});
  command.run = run_show;
  return command;
}

Command order_export_command() {
  Command command;
  command.name = "schedules export";
  command.summary = "print a schedule's order as CSV or JSON";
  command.examples = {{"schedules export interleaved -p 4 -m 8 -v 2 > order.csv",
                       "for PyTorch's runtime, or for a spreadsheet"},
                      {"schedules export 1f1b -p 4 -m 8 --comms --torch 2.15",
                       "every action that PyTorch 2.15 performs"}};
  command.positionals = {schedule_name()};
  command.flags = schedule_flags();
  for (auto& flag : cost_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back(
      {.group = "Output",
       .name = "--format",
       .argument = "FORMAT",
       .help = "of the file: PyTorch's CSV, or JSON, which holds the placement too",
       .choices = {"pytorch-csv", "json"},
       .checked = true});
  command.flags.push_back(
      {.group = "Output",
       .name = "--comms",
       .help = "with transfers, placed by PyTorch's rule, and what --torch needs beside them"});
  command.flags.push_back(
      {.group = "Output",
       .name = "--torch",
       .argument = "RELEASE",
       .help = "whose runtime takes the actions of --comms: 2.13 (UNSHARD, RESHARD, REDUCE_GRAD; "
               "of a CSV unless given), 2.15 (and waits), none (transfers alone; of JSON unless "
               "given)",
       .choices = {"2.13", "2.15", "none"},
       .checked = true});
  command.flags.push_back(megatron_flag("Output"));
  command.flags.push_back({.group = "Output",
                           .name = "--out",
                           .argument = "FILE",
                           .help = "write to a file instead of standard output",
                           .short_name = 'o',
                           .is_file = true,
                           .writes = Writes::File});
  command.run = run_export;
  return command;
}

}  // namespace

Command schedules_command() {
  Command command;
  command.name = "schedules";
  command.summary = "list, show and export schedules";
  command.examples = {{"schedules list", "what there is"},
                      {"schedules show zb-h1", "one of them"},
                      {"schedules export 1f1b --pp 4 --micro-batches 8", "its order as CSV"}};
  command.children = {list_command(), show_command(), order_export_command()};
  return command;
}

}  // namespace pipewright::tools
