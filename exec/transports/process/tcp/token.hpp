// The secret that the processes of a job share: from PIPEWRIGHT_TOKEN or PIPEWRIGHT_TOKEN_FILE, or,
// where they meet over the loopback and have neither, one that process 0 makes and leaves in a
// folder that nobody else can enter.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "exec/transports/process/tcp/proof.hpp"

namespace pipewright::exec::tcp {

/// What PIPEWRIGHT_TOKEN_FILE names. Throws InputError where it cannot be read, others may read it
/// too, or it is empty: says how to make one.
std::string read_token_file(const std::string& path);
/// The end of a sentence that says that a token is missing.
std::string how_to_make_token();

/// Where the token of a meeting over the loopback lies, by where the processes meet. Throws
/// MachineError if there is no place that belongs to this user alone.
std::filesystem::path own_token_path(const std::string& host, int port);

/// A token made by process 0; its file goes away with the object.
class OwnToken {
 public:
  explicit OwnToken(std::filesystem::path path);
  ~OwnToken();
  OwnToken(const OwnToken&) = delete;
  OwnToken& operator=(const OwnToken&) = delete;
  const Block& key() const { return key_; }

 private:
  std::filesystem::path path_;
  Block key_;
};

/// The one that process 0 has left; nullopt: none yet. Throws MachineError for what is not a file
/// of this user alone.
std::optional<Block> left_token(const std::filesystem::path& path);

}  // namespace pipewright::exec::tcp
