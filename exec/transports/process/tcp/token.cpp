#include "exec/transports/process/tcp/token.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/base/error.hpp"
#include "exec/transports/process/presence.hpp"
#include "exec/transports/process/tcp/private_file.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::size_t kMostTokenBytes = 4096;

Block digest_of(std::string_view text) { return proof_of({}, text, {}); }

}  // namespace

std::string how_to_make_token() {
  return "make one by (umask 077; head -c 32 /dev/urandom | base64 > pipewright.token) and set "
         "PIPEWRIGHT_TOKEN_FILE to it for every process, or PIPEWRIGHT_TOKEN to what is in it";
}

std::string read_token_file(const std::string& path) {
  const std::string name = "PIPEWRIGHT_TOKEN_FILE: " + path;
  std::optional<ReadFile> file;
  try {
    file = read_private_file(path, Links::Followed);
  } catch (const InputError& error) {
    throw InputError(name, "", error.message());
  } catch (const MachineError& error) {
    throw InputError(name, "", error.what());
  }
  if (!file) throw InputError(name, "", "is not there; " + how_to_make_token());
  if (!file->owner.is_private || (file->owner.user != geteuid() && file->owner.user != 0))
    throw InputError(name, "",
                     "others may read or write this token; expected a file of this user's with "
                     "mode 0600: chmod 600 it, and make another token if they may have read it");
  std::string token(reinterpret_cast<const char*>(file->bytes.data()), file->bytes.size());
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0)
    token.pop_back();
  if (token.empty() || token.size() > kMostTokenBytes)
    throw InputError(name, "",
                     "expected a token of 1 to " + std::to_string(kMostTokenBytes) + " bytes; " +
                         how_to_make_token());
  return token;
}

std::filesystem::path own_token_path(const std::string& host, int port) {
  constexpr std::size_t kDigits = 16;
  std::error_code failed;
  std::filesystem::path temporary = std::filesystem::temp_directory_path(failed);
  if (failed) temporary = "/tmp";
  const std::filesystem::path folder = temporary / ("pipewright-" + std::to_string(geteuid()));
  make_private_folder(folder);
  const std::string where =
      (host == "localhost" ? "127.0.0.1" : host) + " " + mpi::own_site().network;
  return folder /
         ("token-" + std::to_string(port) + "-" + hex_of(digest_of(where)).substr(0, kDigits));
}

OwnToken::OwnToken(std::filesystem::path path) : path_(std::move(path)), key_(random_block()) {
  // Under a name of its own first: who sees the file sees all of it.
  const std::filesystem::path unfinished =
      path_.string() + "." + hex_of(random_block()).substr(0, 16);
  write_private_file(unfinished, key_);
  std::error_code failed;
  std::filesystem::rename(unfinished, path_, failed);
  if (!failed) return;
  unlink(unfinished.c_str());
  throw MachineError("cannot write " + path_.string() + ": " + failed.message());
}

OwnToken::~OwnToken() { unlink(path_.c_str()); }

std::optional<Block> left_token(const std::filesystem::path& path) {
  const auto file = read_private_file(path, Links::Refused);
  if (!file) return std::nullopt;
  Block key;
  if (!file->owner.is_private || file->owner.user != geteuid() || file->bytes.size() != key.size())
    throw MachineError(path.string() + " is not a token that process 0 of a job has left");
  std::copy(file->bytes.begin(), file->bytes.end(), key.begin());
  return key;
}

}  // namespace pipewright::exec::tcp
