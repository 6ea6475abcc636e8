// The disk tier of one rank: extents in swap files, read by one lane and written by another. Where
// it stands: step plan's Read and Write -> state store -> offload file -> extents -> block files.
// Threads: read() by one lane, write() by another, both at once; between steps also by the thread
// that made the file. add() before either.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "config/run/offload_config.h"
#include "runtime/state/state_account.h"
#include "storage/swap/extent_store.h"
#include "storage/swap/swap_files.h"

namespace dslaunch::zero {

class OffloadFile {
  public:
    // Preallocates CAPACITY. Throws Error{kDisk} when the disk has no room for it.
    OffloadFile(const config::OffloadConfig& config, const storage::SwapPlace& place,
                Bytes capacity);
    OffloadFile(const OffloadFile&) = delete;
    OffloadFile& operator=(const OffloadFile&) = delete;
    ~OffloadFile();

    [[nodiscard]] storage::ExtentId add(const std::string& name, Bytes length);
    // The memory that most transfers will use, for the kernel to hold unless pin_memory is false;
    // once, before the first. It must outlive the file.
    void register_memory(std::span<std::byte> memory);

    // Several transfers at once; blocks until all are done. Memory as ExtentStore has it. Throws
    // Error{kDisk}; what was read must not be used then.
    struct Part {
        storage::ExtentId extent;
        std::span<std::byte> memory;
    };
    void read(std::span<const Part> parts);
    // The same in two parts, for work while the bytes come. REQUIRES: each is finished, in order,
    // unless an exception passes.
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin_read(std::span<const Part> parts);
    void finish_read(std::vector<storage::ExtentTransfer> transfers);
    void write(std::span<const Part> parts);

    // What was last written to EXTENT, whole blocks.
    [[nodiscard]] Bytes content(storage::ExtentId extent) const;

    // Since the file was made. Between steps.
    [[nodiscard]] runtime::DiskTraffic traffic() const;
    [[nodiscard]] std::string describe() const;  // engine, path, depth
    [[nodiscard]] std::vector<std::string> paths() const;

  private:
    struct Disk;
    std::unique_ptr<Disk> disk_;
};

}  // namespace dslaunch::zero
