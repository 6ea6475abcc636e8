// The disk tier of one rank: extents in swap files, read by one lane and written by another. Data
// path: step plan's Read and Write -> state store -> offload file -> extents -> block files.
// Threads: one lane calls read(), another write(), at the same time. Between steps the thread that
// made the file may call both. All calls of add() come before the first read() or write().
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

// The swap files of one rank; see the top of this file.
class OffloadFile {
  public:
    // Preallocates CAPACITY on the disk. Throws Error{kDisk} if the disk has no room for it.
    OffloadFile(const config::OffloadConfig& config, const storage::SwapPlace& place,
                Bytes capacity);

    // Adds an extent of LENGTH bytes. NAME is for messages.
    [[nodiscard]] storage::ExtentId add(const std::string& name, Bytes length);
    // Registers with the kernel the memory that most transfers will use, unless pin_memory is
    // false. Called once, before the first transfer. MEMORY must outlive the file.
    void register_memory(std::span<std::byte> memory);

    // read() and write() move several parts at once, with one request for parts that are adjacent,
    // and block until all are done. REQUIRES: memory is aligned as ExtentStore requires. They throw
    // Error{kDisk}. After an error, memory that was being read into must not be used.
    using Part = storage::ExtentStore::Part;
    void read(std::span<const Part> parts);
    // begin_read() and finish_read() divide read() in two, so that the caller can work during the
    // transfer. REQUIRES: each read is finished, in order, unless an exception is thrown.
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin_read(std::span<const Part> parts);
    void finish_read(std::vector<storage::ExtentTransfer> transfers);
    void write(std::span<const Part> parts);

    // Returns the length last written to EXTENT, in whole blocks.
    [[nodiscard]] Bytes content(storage::ExtentId extent) const;

    // Returns the traffic since the file was made. Called between steps.
    [[nodiscard]] runtime::DiskTraffic traffic() const;
    [[nodiscard]] std::string describe() const;  // engine, path, depth
    // Returns the paths of the swap files.
    [[nodiscard]] std::vector<std::string> paths() const;

  private:
    using Move = storage::ExtentTransfer (storage::ExtentStore::*)(std::span<const Part>,
                                                                   storage::BlockFile*);
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin(Move move, std::span<const Part> parts,
                                                             storage::BlockFile& lane);

    // Each thread that transfers has its own block file: the two lanes, and the thread that made
    // this object, for transfers outside of a step.
    storage::SwapFiles swap_;
    std::unique_ptr<storage::BlockFile> reads_;
    std::unique_ptr<storage::BlockFile> writes_;
    std::unique_ptr<storage::BlockFile> own_;
    storage::ExtentStore extents_;
    std::thread::id owner_ = std::this_thread::get_id();
    bool registers_;
};

}  // namespace dslaunch::zero
