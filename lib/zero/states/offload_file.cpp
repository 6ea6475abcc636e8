#include "zero/states/offload_file.h"

#include <fmt/core.h>

#include <thread>

#include "storage/disk/disk_facts.h"
#include "storage/disk/open_block_file.h"
#include "storage/swap/io_settings.h"

namespace dslaunch::zero {

namespace {

// The I/O engine and limits of transfers. The user's settings come first, then the settings that
// io-bench stored for the first folder's disk, then the engine's defaults.
struct Transfers {
    storage::IoEngine engine = storage::IoEngine::kAuto;
    storage::QueueLimits limits;
};

storage::IoEngine engine_of(config::OffloadEngine engine) {
    if (engine == config::OffloadEngine::kIoUring) return storage::IoEngine::kUring;
    if (engine == config::OffloadEngine::kThreads) return storage::IoEngine::kThreads;
    return storage::IoEngine::kAuto;
}

Transfers transfers_of(const config::OffloadConfig& config, const std::string& folder) {
    Transfers transfers;
    transfers.engine = engine_of(config.engine);
    if (const auto stored = storage::stored_io_settings(storage::io_settings_path(),
                                                        storage::disk_facts(folder).id)) {
        transfers.limits.block = stored->block;
        transfers.limits.depth = stored->depth;
        if (config.engine == config::OffloadEngine::kAuto) transfers.engine = stored->engine;
    }
    const config::AioConfig& aio = config.aio;
    if (aio.block_bytes > 0) transfers.limits.block = Bytes{aio.block_bytes};
    if (aio.queue_depth > 0) transfers.limits.depth = static_cast<int>(aio.queue_depth);
    if (aio.threads > 0) transfers.limits.threads_max = static_cast<int>(aio.threads);
    return transfers;
}

std::unique_ptr<storage::BlockFile> open_file(const storage::SwapFiles& swap,
                                              const config::OffloadConfig& config,
                                              const storage::SwapPlace& place) {
    const Transfers transfers = transfers_of(config, place.folders.front());
    return storage::open_block_file(swap.files(), transfers.engine, transfers.limits);
}

}  // namespace

OffloadFile::OffloadFile(const config::OffloadConfig& config, const storage::SwapPlace& place,
                         Bytes capacity)
    : swap_(place, capacity),
      reads_(open_file(swap_, config, place)),
      writes_(open_file(swap_, config, place)),
      own_(open_file(swap_, config, place)),
      extents_(*own_),
      registers_(config.pin_memory) {}

storage::ExtentId OffloadFile::add(const std::string& name, Bytes length) {
    return extents_.add(name, length);
}

void OffloadFile::register_memory(std::span<std::byte> memory) {
    if (!registers_) return;
    reads_->register_memory(memory);
    writes_->register_memory(memory);
}

void OffloadFile::read(std::span<const Part> parts) {
    finish_read(begin_read(parts));
}

std::vector<storage::ExtentTransfer> OffloadFile::begin(Move move, std::span<const Part> parts,
                                                        storage::BlockFile& lane) {
    storage::BlockFile& file = std::this_thread::get_id() == owner_ ? *own_ : lane;
    std::vector<storage::ExtentTransfer> transfers;
    while (!parts.empty()) {
        const auto together = static_cast<size_t>(extents_.parts_together(parts));
        transfers.push_back((extents_.*move)(parts.first(together), &file));
        parts = parts.subspan(together);
    }
    return transfers;
}

std::vector<storage::ExtentTransfer> OffloadFile::begin_read(std::span<const Part> parts) {
    return begin(&storage::ExtentStore::read, parts, *reads_);
}

void OffloadFile::finish_read(std::vector<storage::ExtentTransfer> transfers) {
    for (storage::ExtentTransfer& transfer : transfers) extents_.wait(std::move(transfer));
}

void OffloadFile::write(std::span<const Part> parts) {
    for (storage::ExtentTransfer& transfer : begin(&storage::ExtentStore::write, parts, *writes_))
        extents_.wait(std::move(transfer));
}

Bytes OffloadFile::content(storage::ExtentId extent) const {
    return extents_.content_bytes(extent);
}

runtime::DiskTraffic OffloadFile::traffic() const {
    const storage::ExtentCounters& counters = extents_.counters();
    return {counters.read, counters.written,
            counters.read_checksum_time + counters.write_checksum_time};
}

std::vector<std::string> OffloadFile::paths() const {
    std::vector<std::string> found;
    for (const storage::BackingFile& file : swap_.files().files) found.push_back(file.path);
    return found;
}

std::string OffloadFile::describe() const {
    const storage::BlockFileFacts facts = reads_->facts();
    return fmt::format("{} (I/O engine {}, up to {} requests of {} at once, {})",
                       swap_.files().path_at(0), facts.engine, facts.depth, to_text(facts.block),
                       facts.has_registered_memory ? "registered memory" : "memory not registered");
}

}  // namespace dslaunch::zero
