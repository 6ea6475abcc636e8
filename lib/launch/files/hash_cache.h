// Hashes of files that were read before, so that a second start of a job does not read them again.
// One small text file per user. One thread; several processes may use it at once, the last to save
// wins.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "launch/files/file_identity.h"

namespace dslaunch::launch {

class HashCache {
  public:
    // PATH is read at the first find(). Empty: nothing is remembered.
    explicit HashCache(std::string path) : path_(std::move(path)) {}

    // $XDG_CACHE_HOME/dslaunch/hashes, else ~/.cache/dslaunch/hashes, empty without a home.
    [[nodiscard]] static std::string default_path();

    // The hash that add() was given for a file with this device, inode, size and times; empty when
    // there is none.
    [[nodiscard]] std::string find(const struct stat& status, bool sampled);
    // STATUS is from before the file was read. A file that changed within the last two seconds is
    // not remembered: a later change may leave equal times.
    void add(const struct stat& status, bool sampled, std::string_view hash);
    // Writes what add() brought, mode 0600, at most kEntriesMax entries, the oldest go first. A
    // cache that cannot be written is not a failure of the job: it is logged at level debug.
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

}  // namespace dslaunch::launch
