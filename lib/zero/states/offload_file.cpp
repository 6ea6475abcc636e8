#include "zero/states/offload_file.h"

#include <fmt/core.h>

#include <thread>

#include "storage/disk/disk_facts.h"
#include "storage/disk/open_block_file.h"
#include "storage/swap/io_settings.h"

namespace dslaunch::zero {

namespace {

// The engine and limits of transfers: the user's, else those that io-bench stored for the first
// folder's disk, else the engine's default.
struct Transfers {
    storage::IoEngine engine = storage::IoEngine::kAuto;
    storage::QueueLimits limits;
};

storage::IoEngine engine_of(config::OffloadEngine engine) {
    switch (engine) {
        case config::OffloadEngine::kAuto:
            break;
        case config::OffloadEngine::kIoUring:
            return storage::IoEngine::kUring;
        case config::OffloadEngine::kThreads:
            return storage::IoEngine::kThreads;
    }
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

}  // namespace

// Each thread that transfers has a block file of its own: the two lanes, and the thread that made
// this, for transfers outside of a step.
struct OffloadFile::Disk {
    storage::SwapFiles swap;
    std::unique_ptr<storage::BlockFile> reads;
    std::unique_ptr<storage::BlockFile> writes;
    std::unique_ptr<storage::BlockFile> own;
    storage::ExtentStore extents;
    std::thread::id owner = std::this_thread::get_id();

    bool registers = true;

    Disk(const config::OffloadConfig& config, const storage::SwapPlace& place, Bytes capacity)
        : swap(place, capacity),
          reads(open(config, place)),
          writes(open(config, place)),
          own(open(config, place)),
          extents(*own),
          registers(config.pin_memory) {}

    [[nodiscard]] std::unique_ptr<storage::BlockFile> open(const config::OffloadConfig& config,
                                                           const storage::SwapPlace& place) const {
        const Transfers transfers = transfers_of(config, place.folders.front());
        return storage::open_block_file(swap.files(), transfers.engine, transfers.limits);
    }

    using Transfer = storage::ExtentTransfer (storage::ExtentStore::*)(std::span<const Part>,
                                                                       storage::BlockFile*);
    [[nodiscard]] std::vector<storage::ExtentTransfer> begin(Transfer move,
                                                             std::span<const Part> parts,
                                                             storage::BlockFile& lane) {
        std::vector<storage::ExtentTransfer> transfers;
        while (!parts.empty()) {
            const auto together = static_cast<size_t>(extents.parts_together(parts));
            transfers.push_back((extents.*move)(parts.first(together), of_lane(lane)));
            parts = parts.subspan(together);
        }
        return transfers;
    }

    [[nodiscard]] storage::BlockFile* of_lane(storage::BlockFile& lane) const {
        return std::this_thread::get_id() == owner ? own.get() : &lane;
    }
};

OffloadFile::OffloadFile(const config::OffloadConfig& config, const storage::SwapPlace& place,
                         Bytes capacity)
    : disk_(std::make_unique<Disk>(config, place, capacity)) {}

OffloadFile::~OffloadFile() = default;

storage::ExtentId OffloadFile::add(const std::string& name, Bytes length) {
    return disk_->extents.add(name, length);
}

void OffloadFile::register_memory(std::span<std::byte> memory) {
    if (!disk_->registers) return;
    disk_->reads->register_memory(memory);
    disk_->writes->register_memory(memory);
}

void OffloadFile::read(std::span<const Part> parts) {
    finish_read(begin_read(parts));
}

std::vector<storage::ExtentTransfer> OffloadFile::begin_read(std::span<const Part> parts) {
    return disk_->begin(&storage::ExtentStore::read, parts, *disk_->reads);
}

void OffloadFile::finish_read(std::vector<storage::ExtentTransfer> transfers) {
    for (storage::ExtentTransfer& transfer : transfers) disk_->extents.wait(std::move(transfer));
}

void OffloadFile::write(std::span<const Part> parts) {
    for (storage::ExtentTransfer& transfer :
         disk_->begin(&storage::ExtentStore::write, parts, *disk_->writes))
        disk_->extents.wait(std::move(transfer));
}

Bytes OffloadFile::content(storage::ExtentId extent) const {
    return disk_->extents.content_bytes(extent);
}

runtime::DiskTraffic OffloadFile::traffic() const {
    const storage::ExtentCounters& counters = disk_->extents.counters();
    return {counters.read, counters.written,
            counters.read_checksum_time + counters.write_checksum_time};
}

std::vector<std::string> OffloadFile::paths() const {
    std::vector<std::string> found;
    for (const storage::BackingFile& file : disk_->swap.files().files) found.push_back(file.path);
    return found;
}

std::string OffloadFile::describe() const {
    const storage::BlockFileFacts facts = disk_->reads->facts();
    return fmt::format("{} by {}, {} at once of {} each, {}", disk_->swap.files().path_at(0),
                       facts.engine, facts.depth, to_text(facts.block),
                       facts.registered_memory ? "registered memory" : "memory not registered");
}

}  // namespace dslaunch::zero
