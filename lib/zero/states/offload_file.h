// The disk tier of one rank: extents in swap files, read by one lane and written by another. Data
// path: step plan's Read and Write -> state store -> offload file -> extents -> block files.
// Threads: one lane calls read(), another write(), both at once. Between steps the thread that made
// the file may call both. add() comes before either.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
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

    [[nodiscard]] storage::ExtentId add(const std::string& name, Bytes length);
    // Registers the memory that most transfers will use with the kernel, unless pin_memory is
    // false. It is called once, before the first transfer. MEMORY must outlive the file.
    void register_memory(std::span<std::byte> memory);

    // read() and write() move several parts at once, with one request for parts that lie together,
    // and block until all are done. Memory is aligned as ExtentStore requires. They throw
    // Error{kDisk}, and memory that was being read into must not be used then.
    using Part = storage::ExtentStore::Part;
    void read(std::span<const Part> parts);
    // begin_read() and finish_read() are read() in two parts, for work while the bytes come.
    // REQUIRES: each read is finished, in order, unless an exception passes.
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin_read(std::span<const Part> parts);
    void finish_read(std::vector<storage::ExtentTransfer> transfers);
    void write(std::span<const Part> parts);

    // Returns the length last written to EXTENT, in whole blocks.
    [[nodiscard]] Bytes content(storage::ExtentId extent) const;

    // Returns the traffic since the file was made. Called between steps.
    [[nodiscard]] runtime::DiskTraffic traffic() const;
    [[nodiscard]] std::string describe() const;  // engine, path, depth
    [[nodiscard]] std::vector<std::string> paths() const;

  private:
    using Move = storage::ExtentTransfer (storage::ExtentStore::*)(std::span<const Part>,
                                                                   storage::BlockFile*);
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin(Move move, std::span<const Part> parts,
                                                             storage::BlockFile& lane);

    // Each thread that transfers has a block file of its own: the two lanes, and the thread that
    // made this, for transfers outside of a step.
    storage::SwapFiles swap_;
    std::unique_ptr<storage::BlockFile> reads_;
    std::unique_ptr<storage::BlockFile> writes_;
    std::unique_ptr<storage::BlockFile> own_;
    storage::ExtentStore extents_;
    std::thread::id owner_ = std::this_thread::get_id();
    bool registers_;
};

}  // namespace dslaunch::zero
