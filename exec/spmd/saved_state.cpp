#include "exec/spmd/saved_state.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.hpp"
#include "core/spmd/reshard_steps.hpp"
#include "exec/checkpoint/safetensors.hpp"

namespace pipewright::exec::graphs {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockFloats = 16384;
constexpr const char* kStateFile = "state.json";
constexpr const char* kStepKey = "step";

std::string file_name(int rank, int save) {
  const std::string number = save > 0 ? ".save-" + std::to_string(save) : "";
  return "rank-" + std::to_string(rank) + number + ".safetensors";
}

bool is_part_file(std::string_view name) {
  return name.starts_with("rank-") && name.ends_with(".safetensors");
}

std::string checksum_key(const std::string& array) { return "crc " + array; }
std::string offset_key(const std::string& array) { return "at " + array; }

/// "0 16".
std::string offset_text(const spmd::LocalPart& part) {
  std::string text;
  for (const std::int64_t one : part.offset)
    text += (text.empty() ? "" : " ") + std::to_string(one);
  return text;
}

std::string checksum_text(std::span<const float> block) {
  return crc_text(crc32_of(std::as_bytes(block)));
}

/// Of each block, one after another.
std::string checksums_of(const std::vector<float>& values) {
  std::string text;
  for (std::size_t at = 0; at < values.size(); at += kBlockFloats) {
    const std::span block(values.data() + at, std::min(kBlockFloats, values.size() - at));
    text += (text.empty() ? "" : " ") + checksum_text(block);
  }
  return text;
}

/// A rank's file, and of the array that is read the block that was read last.
class PartFile {
 public:
  PartFile(const fs::path& folder, int rank, const StateDescription& of)
      : file_(folder / file_name(rank, of.save)) {
    if (!fs::exists(file_)) {
      throw InputError(
          file_.string(), "",
          "is missing; " + (folder / kStateFile).string() + " says that a part lies there");
    }
    header_ = read_safetensors(file_);
    const auto saved = header_.metadata.find(kStepKey);
    if (saved == header_.metadata.end() || saved->second != std::to_string(of.step)) {
      throw InputError(file_.string(), "/__metadata__/" + std::string(kStepKey),
                       "is of another save than " + std::string(kStateFile) + ", which has step " +
                           std::to_string(of.step));
    }
    stream_.open(file_, std::ios::binary);
  }

  void select(const std::string& name, const spmd::LocalPart& part) {
    tensor_ = header_.find(name);
    if (tensor_ == nullptr) fail(name, "is not there");
    if (tensor_->type != kSafeFloats || tensor_->shape != part.shape) {
      fail(name, "has another shape or type than " + std::string(kStateFile) + " says");
    }
    const auto offset = header_.metadata.find(offset_key(name));
    if (offset == header_.metadata.end() || offset->second != offset_text(part)) {
      fail(name, "is another part than " + std::string(kStateFile) + " says");
    }
    const auto sums = header_.metadata.find(checksum_key(name));
    if (sums == header_.metadata.end()) fail(name, "has no checksums");
    std::istringstream words(sums->second);
    checksums_.clear();
    for (std::string word; words >> word;) checksums_.push_back(word);
    const std::size_t blocks = (size() + kBlockFloats - 1) / kBlockFloats;
    if (checksums_.size() != blocks) fail(name, "has not a checksum for each block");
    held_.reset();
  }

  /// Of the selected array the elements [first, first + count).
  void read(std::size_t first, std::size_t count, float* into) {
    while (count > 0) {
      const std::size_t within = first % kBlockFloats;
      const std::vector<float>& block = block_at(first / kBlockFloats);
      const std::size_t here = std::min(count, block.size() - within);
      into = std::copy_n(block.data() + within, here, into);
      first += here;
      count -= here;
    }
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& array, const std::string& why) const {
    throw InputError(file_.string(), "/" + array, why);
  }
  std::size_t size() const { return sized(tensor_->bytes) / sizeof(float); }

  const std::vector<float>& block_at(std::size_t at) {
    if (held_ == at) return block_;
    block_.resize(std::min(kBlockFloats, size() - at * kBlockFloats));
    const auto length = static_cast<std::streamsize>(block_.size() * sizeof(float));
    stream_.seekg(tensor_->first_byte +
                  static_cast<std::int64_t>(at * kBlockFloats * sizeof(float)));
    stream_.read(reinterpret_cast<char*>(block_.data()), length);
    if (!stream_) fail(tensor_->name, "cannot be read");
    if (checksum_text(block_) != checksums_[at]) {
      fail(tensor_->name, "is damaged: block " + std::to_string(at) +
                              " does not have the checksum in the file's head");
    }
    bytes_ += length;
    held_ = at;
    return block_;
  }

  fs::path file_;
  SafetensorsHeader header_;
  std::ifstream stream_;
  const SafeTensor* tensor_ = nullptr;
  std::vector<std::string> checksums_;
  std::vector<float> block_;
  std::optional<std::size_t> held_;
  std::int64_t bytes_ = 0;
};

StateDescription description_in(const fs::path& folder) {
  const fs::path file = folder / kStateFile;
  if (!fs::exists(file)) {
    throw InputError(file.string(), "",
                     "is missing: the folder is no saved state, or its save was not finished");
  }
  const Json json = parse_json(read_text(file.string()), file.string());
  return read_state_description(JsonCursor(json, file.string()));
}

}  // namespace

SavedState::SavedState(fs::path folder)
    : folder_(std::move(folder)), description_(description_in(folder_)) {}

LocalArray SavedState::read(const std::string& name, const spmd::Shape& shape,
                            const spmd::LocalPart& part, std::int64_t& bytes) const {
  const std::string file = (folder_ / kStateFile).string();
  const SavedArray* array = description_.find(name);
  if (array == nullptr) throw InputError(file, "/arrays", "has no \"" + name + "\"");
  if (array->shape != shape) {
    throw InputError(file, "/arrays/" + name + "/shape",
                     "is another one than the tensor's in the graph");
  }
  LocalArray made = zeros_of(part);
  for (const WrittenPart& written : written_parts(*array)) {
    const auto common = spmd::common_part(written.part, part);
    if (!common) continue;
    PartFile from(folder_, written.rank, description_);
    from.select(name, written.part);
    std::vector<float> packed(sized(spmd::elements_of(*common)));
    for_each_row(written.part, *common, [&](std::size_t place, std::size_t at, std::size_t width) {
      from.read(place, width, packed.data() + at);
    });
    unpack_box(packed.data(), *common, made);
    bytes += from.bytes();
  }
  return made;
}

int begin_saving(const fs::path& folder) {
  make_folder(folder);
  if (!fs::exists(folder / kStateFile)) return 0;
  const int older = description_in(folder).save;
  return older < kMostSaves ? older + 1 : 1;
}

void write_parts(const fs::path& folder, const StateDescription& description, int rank,
                 const std::map<std::string, const LocalArray*>& arrays) {
  std::vector<SafetensorsWriter::Array> written_arrays;
  std::vector<const LocalArray*> values;
  std::map<std::string, std::string> metadata = {{kStepKey, std::to_string(description.step)}};
  for (const SavedArray& array : description.arrays) {
    for (const WrittenPart& written : written_parts(array)) {
      if (written.rank != rank) continue;
      values.push_back(arrays.at(array.name));
      written_arrays.push_back({array.name, spmd::elements_of(written.part), written.part.shape});
      metadata[offset_key(array.name)] = offset_text(written.part);
      metadata[checksum_key(array.name)] = checksums_of(values.back()->values);
    }
  }
  if (written_arrays.empty()) return;
  SafetensorsWriter writer(folder / file_name(rank, description.save), written_arrays, metadata);
  for (const LocalArray* one : values) writer.write(one->values);
  writer.finish();
}

void finish_saving(const fs::path& folder, const StateDescription& description) {
  const std::string text = to_text(to_json(description));
  DurableFile file(folder, "state");
  file.write(std::as_bytes(std::span(text)));
  file.commit(kStateFile);
  std::set<std::string> own;
  for (const SavedArray& array : description.arrays) {
    for (const WrittenPart& written : written_parts(array))
      own.insert(file_name(written.rank, description.save));
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_part_file(name) && own.count(name) == 0) remove_quietly(entry.path());
  }
}

}  // namespace pipewright::exec::graphs
