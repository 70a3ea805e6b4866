// pipewright checkpoint: what was trained here leaves as safetensors, and comes back.
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/units.hpp"
#include "exec/checkpoint/exchange.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

std::string required(const Arguments& arguments, const char* what) {
  const auto path = arguments.text("--out");
  if (!path) throw InputError(std::string("--out: say where the ") + what + " goes");
  return *path;
}

int report(const exec::Exchanged& exchanged, const std::string& file, const std::string& folder,
           const std::string& written, Session& session) {
  if (session.json()) {
    session.print_result({{"exchanged",
                           {{"file", file},
                            {"checkpoint", folder},
                            {"arrays", exchanged.arrays},
                            {"bytes", exchanged.bytes},
                            {"kept", exchanged.kept}}}});
    return kDone;
  }
  std::string text = std::to_string(exchanged.arrays) + " arrays";
  if (exchanged.kept > 0) text += " of the file, " + std::to_string(exchanged.kept) + " of --like";
  session.print(text + ", " + format_bytes(Bytes(exchanged.bytes)) + "\n");
  session.wrote(written);
  return kDone;
}

exec::ArrayNames names_of(const Arguments& arguments) {
  const auto file = arguments.text("--names");
  if (!file) return {};
  const Json document = parse_json(read_text(*file), *file);
  return exec::ArrayNames::read(JsonCursor(document, *file));
}

Flag names_flag() {
  return {.group = "Checkpoints",
          .name = "--names",
          .argument = "FILE",
          .help = "names and layouts that the arrays have in the file (names.json)",
          .is_file = true};
}

int run_checkpoint_export(const Arguments& arguments, Session& session) {
  const std::string file = required(arguments, "safetensors file");
  const auto checkpoint = exec::Checkpoint::open(arguments.positionals().front());
  const auto exchanged =
      exec::export_checkpoint(checkpoint, file, arguments.has("--optimizer"), names_of(arguments));
  return report(exchanged, file, checkpoint.folder().string(), file, session);
}

int run_import(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const std::string all = required(arguments, "checkpoint");
  std::optional<exec::Checkpoint> like;
  if (const auto folder = arguments.text("--like")) like = exec::Checkpoint::open(*folder);
  const exec::ArrayNames names = names_of(arguments);
  if (!names.empty() && !like)
    throw InputError("--names: say with --like which checkpoint's arrays these are");
  exec::Exchanged exchanged;
  const std::string folder = exec::import_checkpoint(file, like, all, exchanged, names).string();
  return report(exchanged, file, folder, folder, session);
}

Command checkpoint_export_command() {
  Command command;
  command.name = "checkpoint export";
  command.summary = "write a checkpoint's weights to a safetensors file";
  command.description =
      "Each array keeps its name and its bits, as F32 in one dimension; matrices are [in][out]. "
      "The file's metadata holds what else is true of the training. With --names they have the "
      "names and layouts of another program, such as a PyTorch module's (names.json).";
  command.examples = {
      {"run examples/plan.json --data README.md --save-checkpoint saved", "a training to export"},
      {"checkpoint export saved -o model.safetensors", "the newest checkpoint in a folder"},
      {"checkpoint export saved --names examples/names/gpt2.json -o gpt2.safetensors",
       "as GPT-2 in transformers has it"}};
  command.positionals = {
      {.name = "FOLDER", .help = "a checkpoint, or a folder of them", .least = 1, .most = 1}};
  command.flags = {{.group = "Output",
                    .name = "--out",
                    .argument = "FILE",
                    .help = "the safetensors file",
                    .short_name = 'o',
                    .is_file = true,
                    .writes = Writes::File},
                   {.group = "Output",
                    .name = "--optimizer",
                    .help = "what the optimizer keeps too, as NAME:mean and NAME:square"},
                   names_flag()};
  command.run = run_checkpoint_export;
  return command;
}

Command checkpoint_import_command() {
  Command command;
  command.name = "checkpoint import";
  command.summary = "make a checkpoint from a safetensors file";
  command.description =
      "Of a file of checkpoint export, or with --like of any file whose arrays have the names and "
      "sizes of that checkpoint's; what the file does not have is then that checkpoint's. Arrays "
      "have to be F32, of any shape, and are taken bit by bit. --names is that of the export.";
  command.examples = {
      {"run examples/plan.json --data README.md --save-checkpoint saved", "a training"},
      {"checkpoint export saved -o model.safetensors", "its weights, which others may change"},
      {"checkpoint import model.safetensors --like saved -o imported",
       "new weights, and the old optimizer's state"},
      {"run examples/plan.json --data README.md --load-checkpoint imported --mode evaluate",
       "what they are worth"}};
  command.positionals = {{.name = "FILE", .help = "a safetensors file", .least = 1, .most = 1}};
  command.flags = {{.group = "Output",
                    .name = "--out",
                    .argument = "FOLDER",
                    .help = "the checkpoint goes into a folder of its step in FOLDER",
                    .short_name = 'o',
                    .is_file = true,
                    .writes = Writes::Folder},
                   {.group = "Checkpoints",
                    .name = "--like",
                    .argument = "FOLDER",
                    .help = "the checkpoint whose arrays the file has",
                    .is_file = true},
                   names_flag()};
  command.run = run_import;
  return command;
}

}  // namespace

Command checkpoint_command() {
  Command command;
  command.name = "checkpoint";
  command.summary = "checkpoints to safetensors files and back";
  command.examples = {
      {"run examples/plan.json --data README.md --save-checkpoint saved", "a training to export"},
      {"checkpoint export saved -o model.safetensors", "its weights"},
      {"checkpoint import model.safetensors --like saved -o imported", "and back"}};
  command.children = {checkpoint_export_command(), checkpoint_import_command()};
  return command;
}

}  // namespace pipewright::tools
