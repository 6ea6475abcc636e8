// The part of a block file that the engines share: its files, and the table of its requests. The
// engine that derives from it starts the pieces and reports their results. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

// An engine's base class; it has no public constructor.
class QueuedBlockFile : public BlockFile {
  public:
    [[nodiscard]] Bytes capacity() const final { return files_.capacity; }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const final {
        return files_.path_at(offset_bytes);
    }

  protected:
    // FILES must outlive this object. The depth in LIMITS is reduced to DEPTH_MAX if it is larger.
    QueuedBlockFile(const BackingFiles& files, const QueueLimits& limits, int depth_max)
        : files_(files), table_(files.layout, limits.with_depth_max(depth_max)) {}
    [[nodiscard]] BlockFileFacts facts_of(const char* engine, bool registered_memory) const {
        return {engine, registered_memory, table_.limits().depth, table_.limits().block};
    }

    const BackingFiles& files_;
    RequestTable table_;
};

}  // namespace dslaunch::storage
