#include "exec/checkpoint/exchange.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "exec/checkpoint/safetensors.hpp"

namespace pipewright::exec {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFactsKey = "pipewright.checkpoint";

using ArrayName = std::pair<std::string, std::string>;  // parameter and slot

std::string name_in_file(const ArrayName& array) {
  return array.second == kValueSlot ? array.first : array.first + ":" + array.second;
}

/// The slot stands behind a colon if what stands before it is a parameter of the file.
ArrayName array_named(const std::string& name, const SafetensorsHeader& header) {
  const std::size_t colon = name.rfind(':');
  if (colon != name.npos && header.find(name.substr(0, colon)) != nullptr)
    return {name.substr(0, colon), name.substr(colon + 1)};
  return {name, std::string(kValueSlot)};
}

CheckpointFacts facts_in(const SafetensorsHeader& header, const std::string& file) {
  const auto found = header.metadata.find(kFactsKey);
  if (found == header.metadata.end())
    throw InputError(file, "",
                     "does not say of which training it is (it was not exported here, or was saved "
                     "again without its metadata); name the checkpoint whose arrays these are with "
                     "--like");
  const std::string place = file + ", metadata " + kFactsKey;
  const Json document = parse_json(found->second, place);
  return read_checkpoint_manifest(JsonCursor(document, place)).facts;
}

/// Where each array of the new checkpoint comes from.
struct Sources {
  std::vector<std::pair<ArrayName, const SafeTensor*>> of_file;
  std::vector<std::pair<ArrayName, std::int64_t>> of_like;  // with its elements
};

void require_floats(const SafeTensor& tensor, const std::string& file) {
  if (tensor.type == kSafeFloats) return;
  throw InputError(file, "/" + tensor.name,
                   "is of the type " + tensor.type +
                       "; a checkpoint holds F32 and converts nothing, so save it as float32");
}

Sources sources_of(const SafetensorsHeader& header, const std::optional<Checkpoint>& like,
                   const std::string& file) {
  Sources sources;
  for (const SafeTensor& tensor : header.tensors) require_floats(tensor, file);
  if (!like) {
    for (const SafeTensor& tensor : header.tensors)
      sources.of_file.emplace_back(array_named(tensor.name, header), &tensor);
    return sources;
  }
  for (const auto& [array, elements] : like->sizes()) {
    const SafeTensor* tensor = header.find(name_in_file(array));
    if (tensor == nullptr) {
      sources.of_like.emplace_back(array, elements);
    } else if (tensor->elements() != elements) {
      throw InputError(file, "/" + tensor->name,
                       "has " + std::to_string(tensor->elements()) + " elements, and " +
                           std::to_string(elements) + " in " + like->folder().string());
    } else {
      sources.of_file.emplace_back(array, tensor);
    }
  }
  if (sources.of_file.size() == header.tensors.size()) return sources;
  const auto unknown = std::ranges::find_if(header.tensors, [&](const SafeTensor& tensor) {
    return std::ranges::find(sources.of_file, &tensor,
                             &std::pair<ArrayName, const SafeTensor*>::second) ==
           sources.of_file.end();
  });
  throw InputError(file, "/" + unknown->name,
                   "is no array of " + like->folder().string() +
                       "; leave it out, or name the checkpoint whose it is");
}

CheckpointPart write_arrays(const fs::path& folder, const Sources& sources,
                            const std::optional<Checkpoint>& like, const fs::path& file) {
  CheckpointPartWriter writer(folder, 0);
  std::vector<float> values;
  const auto add = [&](const ArrayName& array) {
    writer.add({array.first, array.second, 0, static_cast<std::int64_t>(values.size()), values});
  };
  std::ifstream stream(file, std::ios::binary);
  for (const auto& [array, tensor] : sources.of_file) {
    values.resize(static_cast<std::size_t>(tensor->bytes / 4));
    stream.seekg(tensor->first_byte);
    stream.read(reinterpret_cast<char*>(values.data()), tensor->bytes);
    if (!stream) throw MachineError("cannot read " + file.string() + " any more");
    add(array);
  }
  for (const auto& [array, elements] : sources.of_like) {
    values.resize(static_cast<std::size_t>(elements));
    like->read(array.first, array.second, values);
    add(array);
  }
  return writer.finish();
}

}  // namespace

Exchanged export_checkpoint(const Checkpoint& checkpoint, const fs::path& file, bool all) {
  std::vector<std::pair<ArrayName, std::int64_t>> arrays;
  std::vector<SafetensorsWriter::Array> named;
  for (const auto& [array, elements] : checkpoint.sizes()) {
    if (!all && array.second != kValueSlot) continue;
    arrays.emplace_back(array, elements);
    named.push_back({name_in_file(array), elements});
  }
  // "format" is what Python's readers ask for.
  SafetensorsWriter writer(file, named,
                           {{"format", "pt"}, {kFactsKey, to_json(checkpoint.facts(), {}).dump()}});
  Exchanged exchanged;
  std::vector<float> values;
  for (const auto& [array, elements] : arrays) {
    values.resize(static_cast<std::size_t>(elements));
    checkpoint.read(array.first, array.second, values);
    writer.write(values);
    ++exchanged.arrays;
    exchanged.bytes += 4 * elements;
  }
  writer.finish();
  return exchanged;
}

fs::path import_checkpoint(const fs::path& file, const std::optional<Checkpoint>& like,
                           const fs::path& all_checkpoints, Exchanged& exchanged) {
  const SafetensorsHeader header = read_safetensors(file);
  const CheckpointFacts facts = like ? like->facts() : facts_in(header, file.string());
  const Sources sources = sources_of(header, like, file.string());
  const FolderLock lock(all_checkpoints);
  const fs::path folder = checkpoint_folder(all_checkpoints, facts.step);
  if (fs::exists(folder))
    throw InputError(folder.string(), "", "is there already; name another folder");
  std::vector<CheckpointPart> parts;
  try {
    parts.push_back(write_arrays(folder, sources, like, file));
    write_manifest(folder, facts, parts);
  } catch (...) {
    remove_parts(folder, parts);
    throw;
  }
  exchanged = {.arrays = static_cast<std::int64_t>(sources.of_file.size()),
               .bytes = parts.front().bytes,
               .kept = static_cast<std::int64_t>(sources.of_like.size())};
  return folder;
}

}  // namespace pipewright::exec
