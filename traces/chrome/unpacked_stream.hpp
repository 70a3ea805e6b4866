// The text of a trace file, gzip or plain, read piece by piece: only a piece of it is held at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::traces {

/// Throws InputError naming the file, from wherever it is read, if that is damaged or cut short,
/// unpacks to more than `most_bytes`, or to very much more than traces do.
class UnpackedStream : public std::streambuf {
 public:
  /// Of a file; "-" is standard input. Throws as open_to_read().
  UnpackedStream(const std::string& path, std::uint64_t most_bytes);
  /// Of what lies in memory, which must outlive the stream; `file` is for messages.
  UnpackedStream(std::string_view bytes, const std::string& file, std::uint64_t most_bytes);
  ~UnpackedStream() override;
  UnpackedStream(const UnpackedStream&) = delete;
  UnpackedStream& operator=(const UnpackedStream&) = delete;

 protected:
  int_type underflow() override;

 private:
  struct Inflater;
  /// Fills packed_ where all of it is used up; false at the end of the input.
  bool refill();
  /// Into unpacked_; the number of bytes.
  std::size_t inflate_some();
  void account(std::size_t bytes);

  std::string file_;
  std::uint64_t most_bytes_;
  int descriptor_ = -1;
  std::vector<char> read_;      // what packed_ points into, of a file
  std::string_view packed_;     // read and not used yet
  std::vector<char> unpacked_;  // of gzip
  std::unique_ptr<Inflater> gzip_;
  std::uint64_t packed_bytes_ = 0, unpacked_bytes_ = 0;
  bool has_begun_ = false, has_ended_ = false;
};

}  // namespace pipewright::traces
