#include "exec/checkpoint/exchange.hpp"

#include <fstream>
#include <map>
#include <set>
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

/// The array's tensors in the file.
std::vector<FileArray> tensors_of(const ArrayName& array, std::int64_t elements,
                                  const ArrayNames& names) {
  std::vector<FileArray> tensors = names.of(array.first, elements);
  for (FileArray& tensor : tensors) tensor.name = name_in_file({tensor.name, array.second});
  return tensors;
}

void require_about(const ArrayNames& names, const Checkpoint& checkpoint) {
  const auto sizes = checkpoint.sizes();
  std::vector<std::string_view> arrays;
  for (const auto& [array, elements] : sizes) arrays.push_back(array.first);
  names.require_used(arrays);
}

struct TensorOfFile {
  FileArray layout;
  const SafeTensor* tensor = nullptr;
};

/// Where each array of the new checkpoint comes from.
struct Sources {
  struct OfFile {
    ArrayName array;
    std::int64_t elements = 0;
    std::vector<TensorOfFile> tensors;
  };
  std::vector<OfFile> of_file;
  std::vector<std::pair<ArrayName, std::int64_t>> of_like;  // with its elements
};

void require_floats(const SafeTensor& tensor, const std::string& file) {
  if (tensor.type == kSafeFloats) return;
  throw InputError(file, "/" + tensor.name,
                   "is of the type " + tensor.type +
                       "; a checkpoint holds F32 and converts nothing, so save it as float32");
}

std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "[" + text + "]";
}

void require_shape(const TensorOfFile& found, const std::string& file, const Checkpoint& like) {
  const SafeTensor& tensor = *found.tensor;
  if (tensor.elements() != found.layout.elements())
    throw InputError(file, "/" + tensor.name,
                     "has " + std::to_string(tensor.elements()) + " elements, and " +
                         std::to_string(found.layout.elements()) + " in " + like.folder().string());
  // As many elements the other way round would be taken for others without a word.
  if (found.layout.is_matrix && tensor.shape != found.layout.shape())
    throw InputError(file, "/" + tensor.name,
                     "has the shape " + text_of_shape(tensor.shape) + ", and by the names " +
                         text_of_shape(found.layout.shape()));
}

/// The array's tensors in the file; empty: it has none of them.
std::vector<TensorOfFile> found_tensors(const ArrayName& array, std::int64_t elements,
                                        const ArrayNames& names, const SafetensorsHeader& header,
                                        const std::string& file, const Checkpoint& like) {
  std::vector<TensorOfFile> found;
  std::string missing;
  for (FileArray& layout : tensors_of(array, elements, names)) {
    const SafeTensor* tensor = header.find(layout.name);
    if (tensor == nullptr) {
      missing = layout.name;
      continue;
    }
    found.push_back({std::move(layout), tensor});
    require_shape(found.back(), file, like);
  }
  if (!found.empty() && !missing.empty())
    throw InputError(file, "",
                     "has " + found.front().layout.name + " and not " + missing +
                         ", which are both parts of " + name_in_file(array));
  return found;
}

/// Throws InputError for a tensor that is none of the arrays'.
void require_all_taken(const Sources& sources, const SafetensorsHeader& header,
                       const std::string& file, const Checkpoint& like) {
  std::set<const SafeTensor*> taken;
  for (const Sources::OfFile& source : sources.of_file) {
    for (const TensorOfFile& found : source.tensors) {
      if (!taken.insert(found.tensor).second)
        throw InputError(file, "/" + found.tensor->name,
                         "is by its name several arrays of " + like.folder().string() +
                             ", one of them " + name_in_file(source.array));
    }
  }
  for (const SafeTensor& tensor : header.tensors) {
    if (taken.count(&tensor) == 0)
      throw InputError(file, "/" + tensor.name,
                       "is no array of " + like.folder().string() +
                           "; leave it out, or name the checkpoint whose it is");
  }
}

Sources sources_of(const SafetensorsHeader& header, const std::optional<Checkpoint>& like,
                   const ArrayNames& names, const std::string& file) {
  Sources sources;
  for (const SafeTensor& tensor : header.tensors) require_floats(tensor, file);
  if (!like) {
    for (const SafeTensor& tensor : header.tensors) {
      const std::int64_t elements = tensor.elements();
      const FileArray whole = {.name = tensor.name, .all_columns = elements, .columns = elements};
      sources.of_file.push_back({array_named(tensor.name, header), elements, {{whole, &tensor}}});
    }
    return sources;
  }
  require_about(names, *like);
  for (const auto& [array, elements] : like->sizes()) {
    auto found = found_tensors(array, elements, names, header, file, *like);
    if (found.empty()) {
      sources.of_like.emplace_back(array, elements);
    } else {
      sources.of_file.push_back({array, elements, std::move(found)});
    }
  }
  require_all_taken(sources, header, file, *like);
  return sources;
}

CheckpointPart write_arrays(const fs::path& folder, const Sources& sources,
                            const std::optional<Checkpoint>& like, const fs::path& file) {
  CheckpointPartWriter writer(folder, 0);
  std::vector<float> values, tensor;
  const auto add = [&](const ArrayName& array) {
    writer.add({array.first, array.second, 0, static_cast<std::int64_t>(values.size()), values});
  };
  std::ifstream stream(file, std::ios::binary);
  for (const Sources::OfFile& source : sources.of_file) {
    values.resize(static_cast<std::size_t>(source.elements));
    for (const TensorOfFile& part : source.tensors) {
      tensor.resize(static_cast<std::size_t>(part.layout.elements()));
      stream.seekg(part.tensor->first_byte);
      stream.read(reinterpret_cast<char*>(tensor.data()), part.tensor->bytes);
      if (!stream) throw MachineError("cannot read " + file.string() + " any more");
      part.layout.put(tensor, values);
    }
    add(source.array);
  }
  for (const auto& [array, elements] : sources.of_like) {
    values.resize(static_cast<std::size_t>(elements));
    like->read(array.first, array.second, values);
    add(array);
  }
  return writer.finish();
}

/// Each array with its tensors, as they follow one another in the file.
struct Exported {
  ArrayName array;
  std::int64_t elements = 0;
  std::vector<FileArray> tensors;
};

std::vector<Exported> exported_arrays(const Checkpoint& checkpoint, bool all,
                                      const ArrayNames& names) {
  require_about(names, checkpoint);
  std::vector<Exported> arrays;
  std::map<std::string, std::string> owner;
  for (const auto& [array, elements] : checkpoint.sizes()) {
    if (!all && array.second != kValueSlot) continue;
    arrays.push_back({array, elements, tensors_of(array, elements, names)});
    for (const FileArray& tensor : arrays.back().tensors) {
      const auto [place, is_new] = owner.emplace(tensor.name, name_in_file(array));
      if (!is_new)
        throw InputError(checkpoint.folder().string(), "/" + name_in_file(array),
                         "would be " + tensor.name + " in the file, as " + place->second + " is");
    }
  }
  return arrays;
}

}  // namespace

Exchanged export_checkpoint(const Checkpoint& checkpoint, const fs::path& file, bool all,
                            const ArrayNames& names) {
  const std::vector<Exported> arrays = exported_arrays(checkpoint, all, names);
  std::vector<SafetensorsWriter::Array> named;
  for (const Exported& exported : arrays) {
    for (const FileArray& tensor : exported.tensors)
      named.push_back({tensor.name, tensor.elements(), tensor.shape()});
  }
  // "format" is what Python's readers ask for. What has other names does not come back by itself.
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (names.empty()) metadata[kFactsKey] = to_json(checkpoint.facts(), {}).dump();
  SafetensorsWriter writer(file, named, metadata);
  Exchanged exchanged;
  std::vector<float> values, tensor;
  for (const Exported& exported : arrays) {
    values.resize(static_cast<std::size_t>(exported.elements));
    checkpoint.read(exported.array.first, exported.array.second, values);
    for (const FileArray& part : exported.tensors) {
      tensor.resize(static_cast<std::size_t>(part.elements()));
      part.take(values, tensor);
      writer.write(tensor);
    }
    ++exchanged.arrays;
    exchanged.bytes += 4 * exported.elements;
  }
  writer.finish();
  return exchanged;
}

fs::path import_checkpoint(const fs::path& file, const std::optional<Checkpoint>& like,
                           const fs::path& all_checkpoints, Exchanged& exchanged,
                           const ArrayNames& names) {
  const SafetensorsHeader header = read_safetensors(file);
  const CheckpointFacts facts = like ? like->facts() : facts_in(header, file.string());
  const Sources sources = sources_of(header, like, names, file.string());
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
