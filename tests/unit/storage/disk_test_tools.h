// Tools for the tests of the disk tier: aligned memory, swap files in a folder of the test, and
// every engine over them.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "storage/disk/open_block_file.h"
#include "storage/swap/swap_files.h"
#include "support/memory_block_file.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace storage;

class AlignedMemory {
  public:
    explicit AlignedMemory(Bytes length)
        : bytes_(static_cast<std::byte*>(
              std::aligned_alloc(kBlockAlignment, static_cast<size_t>(length.value)))),
          length_(static_cast<size_t>(length.value)) {
        if (bytes_ == nullptr) throw std::bad_alloc();
        std::fill_n(bytes_, length_, std::byte{0});
    }
    AlignedMemory(const AlignedMemory&) = delete;
    AlignedMemory& operator=(const AlignedMemory&) = delete;
    ~AlignedMemory() { std::free(bytes_); }
    [[nodiscard]] std::span<std::byte> all() { return {bytes_, length_}; }
    [[nodiscard]] std::span<std::byte> part(int64_t offset, int64_t length) {
        return all().subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
    }

  private:
    std::byte* bytes_;
    size_t length_;
};

// Fills BYTES with values that are different at every place for different SEEDs.
inline void fill(std::span<std::byte> bytes, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    for (std::byte& byte : bytes) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        byte = static_cast<std::byte>(state);
    }
}

struct EngineCase {
    const char* name;
    IoEngine engine;
    bool memory;
};
inline const std::vector<EngineCase> kEngines = {{"memory", IoEngine::kAuto, true},
                                                 {"threads", IoEngine::kThreads, false},
                                                 {"io_uring", IoEngine::kUring, false}};

inline SwapPlace place_in(const TemporaryFolder& folder, int files = 1) {
    SwapPlace place;
    place.folders = std::vector<std::string>(static_cast<size_t>(files), folder.path());
    place.job_id = "test-job";
    place.stripe = kib(16);
    return place;
}

// A block file of one engine, with the files under it.
class OpenedFile {
  public:
    OpenedFile(const EngineCase& engine, Bytes capacity, const QueueLimits& limits, int files = 1) {
        if (engine.memory) {
            file_ = std::make_unique<MemoryBlockFile>(capacity, limits);
            return;
        }
        swap_ = std::make_unique<SwapFiles>(place_in(folder_, files), capacity);
        file_ = open_block_file(swap_->files(), engine.engine, limits);
    }
    [[nodiscard]] BlockFile& file() { return *file_; }
    [[nodiscard]] const BackingFiles& backing() const { return swap_->files(); }

  private:
    TemporaryFolder folder_;
    std::unique_ptr<SwapFiles> swap_;
    std::unique_ptr<BlockFile> file_;
};

// Mounts a disk of TYPE ("tmpfs", "ramfs") at FOLDER for this process. Returns false if this user
// may not mount.
inline bool mount_disk(const std::string& folder, const char* type, const char* options) {
    static const bool own = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    return own && ::mount("none", folder.c_str(), type, 0, options) == 0;
}

}  // namespace dslaunch::test
