// A file that goes to another machine: its facts, the hashes by which the other end knows which
// chunks it lacks, and its bytes. One thread; blocks while it reads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/fd.h"
#include "launch/files/hash_cache.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

class SentFile {
  public:
    // Throws Error{kInput} naming PATH: it cannot be read, is no plain file, or is larger than
    // kPushFileBytesMax.
    explicit SentFile(std::string path);

    // Size, mode and time; id, path and hash are left to the caller.
    [[nodiscard]] const PushOffer& facts() const { return facts_; }
    // SHA-256 of all bytes, hex; from CACHE when it knows the file. ALIVE is called every few
    // megabytes. Throws Error{kInput} when it cannot be read.
    [[nodiscard]] std::string hash(HashCache& cache, const std::function<void()>& alive) const;
    // SHA-256 of each chunk, as PushChunks has them.
    [[nodiscard]] std::string chunk_hashes(const std::function<void()>& alive) const;
    // LENGTH bytes at OFFSET. Throws Error{kInput} when the file has become shorter.
    [[nodiscard]] std::string read(int64_t offset, int64_t length) const;

  private:
    std::string path_;
    UniqueFd fd_;
    PushOffer facts_;
};

}  // namespace dslaunch::launch
