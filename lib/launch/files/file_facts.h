// The facts by which two hosts know that they hold the same file, and a cache of hashes.
#pragma once

#include <openssl/evp.h>
#include <sys/stat.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launch/protocol/messages.h"

namespace dslaunch::launch {

inline constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

// The identity of a file: it differs from other files', and changes with the file's bytes or name.
struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;  // a rename, and a write that sets the time back, change it too

    auto operator<=>(const FileIdentity&) const = default;  // NOLINT(modernize-use-nullptr): no
                                                            // pointer
};

[[nodiscard]] inline int64_t in_nanoseconds(const timespec& time) {
    return int64_t{time.tv_sec} * kNanosecondsPerSecond + time.tv_nsec;
}

[[nodiscard]] inline FileIdentity identity_of(const struct stat& status) {
    return {status.st_dev, status.st_ino, status.st_size, in_nanoseconds(status.st_mtim),
            in_nanoseconds(status.st_ctim)};
}

// Hashes of files that were read before, so that a second start of a job does not read them again.
// One small text file per user. One thread; several processes may use it at once, and the last to
// save wins.
class HashCache {
  public:
    // Reads PATH at the first find(). Empty: nothing is remembered.
    explicit HashCache(std::string path) : path_(std::move(path)) {}

    // Returns $XDG_CACHE_HOME/dslaunch/hashes, else ~/.cache/dslaunch/hashes; empty: no home.
    [[nodiscard]] static std::string default_path();

    // Returns the hash that add() got for a file with this device, inode, size and times; empty
    // when there is no such file.
    [[nodiscard]] std::string find(const struct stat& status, bool sampled);
    // Adds the hash of a file, with its STATUS from before it was read. A file that changed within
    // the last two seconds is not remembered: a later change may leave equal times.
    void add(const struct stat& status, bool sampled, std::string_view hash);
    // Writes the added hashes, mode 0600, at most kEntriesMax entries without the oldest. A cache
    // that cannot be written is not a failure of the job: it is logged at level debug.
    void save();

    static constexpr size_t kEntriesMax = 1024;

  private:
    using Key = std::pair<FileIdentity, bool>;  // true: the hash is of samples
    void load();
    void remember(const Key& key, std::string_view hash);

    std::string path_;
    bool loaded_ = false;
    bool changed_ = false;
    std::map<Key, std::string> hashes_;
    std::deque<Key> order_;  // the oldest first
};

// SHA-256 over bytes that come in pieces.
class Sha256 {
  public:
    Sha256();
    void add(const void* data, size_t length);
    void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
    // Returns the hash of all added bytes, 32 bytes, and starts over.
    [[nodiscard]] std::string raw();
    // Returns the hash as 64 hexadecimal digits.
    [[nodiscard]] std::string hex();

  private:
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Returns size and SHA-256 of PATH; over 1 GiB, unless ALL_BYTES, the hash of 64 evenly spread
// blocks of 1 MiB. Calls ALIVE every few megabytes. Blocks while it reads; FileFacts::error says
// why a file cannot be read. A file that CACHE (not owned, may be null) knows is not read, unless
// ALL_BYTES; a file that was read is added to it.
[[nodiscard]] FileFacts look_at_file(const std::string& path, bool all_bytes,
                                     const std::function<void()>& alive,
                                     HashCache* cache = nullptr);

// Returns the SHA-256 in hex of all bytes of PATH, from CACHE when it knows the file as it is now;
// empty when it cannot be read. ALIVE as above.
[[nodiscard]] std::string hash_whole_file(const std::string& path, HashCache& cache,
                                          const std::function<void()>& alive);

// Returns the SHA-256 in hex of this process's executable. Throws Error{kSetup} if unreadable.
[[nodiscard]] std::string own_binary_hash();

}  // namespace dslaunch::launch
