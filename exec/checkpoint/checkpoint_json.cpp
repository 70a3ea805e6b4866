#include "exec/checkpoint/checkpoint_json.hpp"

#include <cstdio>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/plan/training_json.hpp"

namespace pipewright::exec {
namespace {

constexpr std::int64_t kMostElements = kMostBytes / 4;
constexpr const char* kSealKey = "crc32";
constexpr std::string_view kNoSeal = "00000000";  // stands in its place while it is computed

std::string crc_of(std::string_view text) {
  return crc_text(crc32_of(std::as_bytes(std::span(text))));
}

std::uint32_t read_hex(const JsonCursor& value) {
  const std::string text = value.string();
  std::uint32_t result = 0;
  bool good = text.size() == 8;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    good = good && (digit || (c >= 'a' && c <= 'f'));
    result = result * 16 + static_cast<std::uint32_t>(digit ? c - '0' : c - 'a' + 10);
  }
  if (!good) value.fail("a checksum of eight hexadecimal digits such as \"09af3c71\"");
  return result;
}

/// A name in the checkpoint's own folder: nobody is led elsewhere.
std::string read_file_name(const JsonCursor& value) {
  const std::string name = read_name(value);
  if (name.find('/') != std::string::npos || name == "." || name == "..") {
    value.fail("the name of a file beside checkpoint.json");
  }
  return name;
}

Json piece_json(const StoredPiece& piece) {
  return {{"parameter", piece.parameter}, {"slot", piece.slot},
          {"first", piece.first},         {"count", piece.count},
          {"elements", piece.total},      {"offset_bytes", piece.offset_bytes}};
}

StoredPiece read_piece(const JsonCursor& value, std::int64_t bytes_of_file) {
  value.only({"parameter", "slot", "first", "count", "elements", "offset_bytes"});
  StoredPiece piece;
  piece.parameter = value.at("parameter").string();
  piece.slot = read_name(value.at("slot"));
  piece.total = value.at("elements").integer(0, kMostElements);
  piece.first = value.at("first").integer(0, piece.total);
  piece.count = value.at("count").integer(0, piece.total - piece.first);
  const JsonCursor offset = value.at("offset_bytes");
  piece.offset_bytes = offset.integer(0, kMostBytes);
  if (piece.offset_bytes % 4 != 0) offset.fail("a multiple of 4, the bytes of an element");
  if (piece.offset_bytes + piece.count * 4 > bytes_of_file) {
    offset.fail("a piece that lies within the " + std::to_string(bytes_of_file) +
                " bytes of its file");
  }
  return piece;
}

CheckpointFacts read_facts(const JsonCursor& document) {
  CheckpointFacts facts;
  facts.model = read_model(document.at("model"));
  facts.step = read_count(document.at("step"), 1, 1'000'000'000);
  facts.updates = read_count(document.at("updates"), 0, 2'000'000'000);
  facts.optimizer = read_name(document.at("optimizer"));
  facts.seed = read_seed(document.at("seed"));
  facts.numerics = read_name(document.at("numerics"));
  facts.micro_batches = read_count(document.at("micro_batches"), 1, 1 << 20);
  facts.micro_batch_size = read_count(document.at("micro_batch_size"), 1, 65536);
  return facts;
}

}  // namespace

Json to_json(const CheckpointPart& part) {
  Json pieces = Json::array();
  for (const StoredPiece& piece : part.pieces) pieces.push_back(piece_json(piece));
  return {{"file", part.file},
          {"bytes", part.bytes},
          {"crc32", crc_text(part.crc)},
          {"arrays", pieces}};
}

CheckpointPart read_checkpoint_part(const JsonCursor& value) {
  value.only({"file", "bytes", "crc32", "arrays"});
  CheckpointPart part;
  part.file = read_file_name(value.at("file"));
  part.bytes = value.at("bytes").integer(0, kMostBytes);
  part.crc = read_hex(value.at("crc32"));
  for (const JsonCursor& piece : value.at("arrays").elements()) {
    part.pieces.push_back(read_piece(piece, part.bytes));
  }
  return part;
}

Json to_json(const CheckpointFacts& facts, std::span<const CheckpointPart> parts) {
  Json json = {{"schema", "pipewright.checkpoint/1"},
               {"step", facts.step},
               {"updates", facts.updates},
               {"optimizer", facts.optimizer},
               {"seed", facts.seed},
               {"numerics", facts.numerics},
               {"micro_batches", facts.micro_batches},
               {"micro_batch_size", facts.micro_batch_size}};
  json["model"] = to_json(facts.model);
  json["parts"] = Json::array();
  for (const CheckpointPart& part : parts) json["parts"].push_back(to_json(part));
  return json;
}

std::string sealed_text(const CheckpointFacts& facts, std::span<const CheckpointPart> parts) {
  Json json = to_json(facts, parts);
  json[kSealKey] = kNoSeal;
  std::string text = to_text(json);
  return text.replace(text.rfind(kNoSeal), kNoSeal.size(), crc_of(text));
}

bool has_checksum(std::string text, std::string_view crc) {
  const std::size_t at = text.rfind(crc);
  if (at == std::string::npos) return false;
  return crc_of(text.replace(at, crc.size(), kNoSeal)) == crc;
}

CheckpointManifest read_checkpoint_manifest(const JsonCursor& document) {
  require_schema(document, "checkpoint");
  document.only({"schema", "step", "updates", "optimizer", "seed", "numerics", "micro_batches",
                 "micro_batch_size", "model", "parts", kSealKey});
  CheckpointManifest manifest;
  if (const auto seal = document.find(kSealKey)) manifest.crc = crc_text(read_hex(*seal));
  manifest.facts = read_facts(document);
  for (const JsonCursor& part : document.at("parts").elements()) {
    manifest.parts.push_back(read_checkpoint_part(part));
  }
  return manifest;
}

}  // namespace pipewright::exec
