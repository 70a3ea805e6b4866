#include "traces/chrome/unpacked_stream.hpp"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "core/base/units.hpp"
#include "traces/chrome/gzip.hpp"

namespace pipewright::traces {
namespace {

// Traces shrink to a tenth or a fortieth, nothing to less than a thousandth. Small ones are let be.
constexpr std::uint64_t kMostRatio = 250, kFreeBytes = std::uint64_t{32} << 20;

}  // namespace

struct UnpackedStream::Inflater {
  z_stream stream{};
  Inflater() {
    PIPEWRIGHT_ASSERT(inflateInit2(&stream, kGzipFormat) == Z_OK, "zlib does not start");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

UnpackedStream::UnpackedStream(const std::string& path, std::uint64_t most_bytes)
    : file_(path), most_bytes_(most_bytes), descriptor_(open_to_read(path)), read_(kGzipPiece) {}

UnpackedStream::UnpackedStream(std::string_view bytes, const std::string& file,
                               std::uint64_t most_bytes)
    : file_(file), most_bytes_(most_bytes), packed_(bytes), packed_bytes_(bytes.size()) {}

UnpackedStream::~UnpackedStream() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

bool UnpackedStream::refill() {
  if (!packed_.empty() || descriptor_ < 0) return !packed_.empty();
  std::size_t filled = 0;
  while (filled < read_.size()) {
    const ssize_t taken = ::read(descriptor_, read_.data() + filled, read_.size() - filled);
    if (taken == 0) break;
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0)
      throw InputError(file_, "", std::string("cannot be read: ") + std::strerror(errno));
    filled += static_cast<std::size_t>(taken);
  }
  packed_ = {read_.data(), filled};
  packed_bytes_ += filled;
  return filled > 0;
}

void UnpackedStream::account(std::size_t bytes) {
  unpacked_bytes_ += bytes;
  if (unpacked_bytes_ > most_bytes_) {
    throw InputError(file_, "",
                     std::string(gzip_ ? "unpacks to more than " : "is larger than ") +
                         format_bytes(Bytes(static_cast<std::int64_t>(most_bytes_))) +
                         ", the most that is read; cut the trace to a few steps");
  }
  if (gzip_ && unpacked_bytes_ > kFreeBytes && unpacked_bytes_ / kMostRatio > packed_bytes_) {
    throw InputError(file_, "",
                     "unpacks to more than " + std::to_string(kMostRatio) +
                         " times its size, which no trace does; if it is one, unpack it first");
  }
}

std::size_t UnpackedStream::inflate_some() {
  z_stream& stream = gzip_->stream;
  for (;;) {
    // A gzip file may be several one after the other, as `cat a.gz b.gz` makes.
    if (has_ended_ && !refill()) return 0;
    if (has_ended_) inflateReset(&stream);
    has_ended_ = false;
    if (!refill())
      throw InputError(file_, "", "is a gzip file that was cut short; copy or record it again");
    const std::size_t most = std::min<std::size_t>(packed_.size(), kGzipPiece);
    // zlib takes a pointer to non-const and does not write through it.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed_.data()));  // NOLINT
    stream.avail_in = static_cast<uInt>(most);
    stream.next_out = reinterpret_cast<Bytef*>(unpacked_.data());
    stream.avail_out = static_cast<uInt>(unpacked_.size());
    const int state = inflate(&stream, Z_NO_FLUSH);
    packed_.remove_prefix(most - stream.avail_in);
    has_ended_ = state == Z_STREAM_END;
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
      throw InputError(file_, "", "is a damaged gzip file; copy or record it again");
    if (const std::size_t bytes = unpacked_.size() - stream.avail_out; bytes > 0) return bytes;
  }
}

UnpackedStream::int_type UnpackedStream::underflow() {
  if (gptr() != nullptr && gptr() < egptr()) return traits_type::to_int_type(*gptr());
  if (!has_begun_) {
    has_begun_ = true;
    refill();
    if (is_gzip(packed_)) {
      gzip_ = std::make_unique<Inflater>();
      unpacked_.resize(kGzipPiece);
    }
  }
  char* begin = nullptr;
  std::size_t size = 0;
  if (gzip_) {
    begin = unpacked_.data();
    size = inflate_some();
  } else if (refill()) {
    begin = const_cast<char*>(packed_.data());  // NOLINT: a streambuf that is only read from
    size = packed_.size();
    packed_ = {};
  }
  account(size);
  setg(begin, begin, begin + size);
  return size == 0 ? traits_type::eof() : traits_type::to_int_type(*begin);
}

}  // namespace pipewright::traces
