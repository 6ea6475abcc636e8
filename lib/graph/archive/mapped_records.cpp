#include "graph/archive/mapped_records.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "storage/files/zip_format.h"

namespace dslaunch::graph {

at::DataPtr copied_data(std::span<const std::byte> bytes) {
    at::DataPtr copy = c10::GetAllocator(at::kCPU)->allocate(bytes.size());
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    return copy;
}

MappedRecords::MappedRecords(std::shared_ptr<const storage::MappedFile> file)
    : file_(std::move(file)), directory_(storage::parse_zip(file_->path(), file_->bytes())) {
    for (const storage::ZipRecord& record : directory_.records)
        records_.emplace(record.name, &record);
}

const storage::ZipRecord* MappedRecords::find(std::string_view name) const {
    const auto found = records_.find(name);
    return found == records_.end() ? nullptr : found->second;
}

std::optional<at::DataPtr> MappedRecords::lend(const storage::ZipRecord& record) {
    const std::span<const std::byte> content = record.stored;
    const auto place = static_cast<size_t>(content.data() - file_->bytes().data());
    const char* obstacle = nullptr;
    if (record.is_deflated) {
        obstacle = "compressed";
    } else if (place % storage::zip::kDataAlignment != 0) {
        obstacle = "not aligned to 64 bytes";
    } else if (!lent_.insert(content.data()).second) {
        obstacle = "used by two storages";
    }
    if (obstacle != nullptr) {
        log_debug("model", "{}: record {} is {}, so it is copied", file_->path(),
                  printable(record.name), obstacle);
        return std::nullopt;
    }
    const auto give_back = [file = file_, content](void*) { file->discard(content); };
    return c10::InefficientStdFunctionContext::makeDataPtr(const_cast<std::byte*>(content.data()),
                                                           give_back, at::kCPU);
}

}  // namespace dslaunch::graph
