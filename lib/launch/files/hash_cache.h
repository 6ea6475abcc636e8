// Hashes of files that were read before, and the identity by which a file is recognized.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch::launch {

inline constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

// The identity of a file. Different files have different identities, and a file's identity changes
// with its bytes or its name.
struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;  // ctime: changes with a rename, and if somebody sets mtime back

    auto operator<=>(const FileIdentity&) const = default;  // NOLINT(modernize-use-nullptr): no
                                                            // pointer
};

// Returns TIME in nanoseconds since 1970.
[[nodiscard]] inline int64_t in_nanoseconds(const timespec& time) {
    return int64_t{time.tv_sec} * kNanosecondsPerSecond + time.tv_nsec;
}

// Returns the identity in STATUS, as stat() gives it.
[[nodiscard]] inline FileIdentity identity_of(const struct stat& status) {
    return {status.st_dev, status.st_ino, status.st_size, in_nanoseconds(status.st_mtim),
            in_nanoseconds(status.st_ctim)};
}

// Hashes of files that were read before, so that a second start of a job does not read them again.
// They are stored in one small text file per user. One thread; several processes may use the file
// at once, and the last process to save wins.
class HashCache {
  public:
    // The cache is read from PATH at the first find(). Empty: nothing is remembered.
    explicit HashCache(std::string path) : path_(std::move(path)) {}

    // Returns $XDG_CACHE_HOME/dslaunch/hashes, else ~/.cache/dslaunch/hashes; empty if there is no
    // home directory.
    [[nodiscard]] static std::string default_path();

    // Returns the hash that was passed to add() for a file with this device, inode, size and times;
    // empty if there is no such file.
    [[nodiscard]] std::string find(const struct stat& status, bool sampled);
    // Adds the hash of a file. STATUS was taken before the file was read. A file that changed
    // within the last two seconds is not remembered: a later change could leave the same times.
    void add(const struct stat& status, bool sampled, std::string_view hash);
    // Writes the added hashes with mode 0600, and drops the oldest entries above kEntriesMax. A
    // cache that cannot be written is not a failure of the job: it is logged at level debug.
    void save();

    static constexpr size_t kEntriesMax = 1024;

  private:
    using Key = std::pair<FileIdentity, bool>;  // second: true if the hash covers only samples
    void load();
    void remember(const Key& key, std::string_view hash);

    std::string path_;
    bool is_loaded_ = false;
    bool is_changed_ = false;
    std::map<Key, std::string> hashes_;
    std::deque<Key> order_;  // the oldest first
};

}  // namespace dslaunch::launch
