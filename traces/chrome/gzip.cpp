#include "traces/chrome/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <ios>
#include <limits>
#include <vector>

#include "core/base/error.hpp"
#include "traces/chrome/unpacked_stream.hpp"

namespace pipewright::traces {
namespace {

// The lines of a trace are so alike that higher levels gain little and cost several times as much.
constexpr int kLevel = 4;

/// The next part of the input that fits zlib's 32-bit counter.
void feed(z_stream& stream, std::string_view& rest) {
  const std::size_t n = std::min<std::size_t>(rest.size(), std::numeric_limits<uInt>::max());
  // zlib takes a pointer to non-const and does not write through it.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));  // NOLINT
  stream.avail_in = static_cast<uInt>(n);
  rest.remove_prefix(n);
}

struct Deflater {
  z_stream stream{};
  Deflater() {
    const int started =
        deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY);
    PIPEWRIGHT_ASSERT(started == Z_OK, "zlib does not start");
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() { deflateEnd(&stream); }
};

}  // namespace

std::string gzip(std::string_view bytes) {
  Deflater deflater;
  z_stream& stream = deflater.stream;
  std::vector<char> chunk(kGzipPiece);
  std::string out;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) feed(stream, bytes);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(kGzipPiece);
    state = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    PIPEWRIGHT_ASSERT(state == Z_OK || state == Z_STREAM_END, "zlib cannot compress");
    out.append(chunk.data(), kGzipPiece - stream.avail_out);
  }
  return out;
}

bool is_gzip(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

std::string gunzip(std::string_view bytes, const std::string& file, std::uint64_t most_bytes) {
  UnpackedStream stream(bytes, file, most_bytes);
  std::vector<char> chunk(kGzipPiece);
  std::string out;
  while (const auto count = stream.sgetn(chunk.data(), static_cast<std::streamsize>(kGzipPiece)))
    out.append(chunk.data(), static_cast<std::size_t>(count));
  return out;
}

}  // namespace pipewright::traces
