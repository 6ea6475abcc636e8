#include "job/verify/scratch_memory.h"

#include <c10/core/CPUAllocator.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/disk_room.h"
#include "base/text.h"

namespace dslaunch::job {

namespace {

constexpr uint8_t kPriority = 1;  // the same as the lending allocator's (runtime/memory)

struct Mapping {
    void* begin = nullptr;
    size_t bytes = 0;
};

void unmap(void* context) {
    const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
    ::munmap(mapping->begin, mapping->bytes);
}

[[noreturn]] void refuse(const std::string& folder, size_t bytes, int error_number) {
    fail(ExitCode::kDisk, "--scratch {}: cannot get {} for the copy of the model: {}",
         printable(folder), to_text(Bytes{static_cast<int64_t>(bytes)}), errno_text(error_number));
}

// Returns a file without a name, which is deleted with its last mapping.
UniqueFd nameless_file(const std::string& folder) {
    return UniqueFd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

}  // namespace

ScratchMemory::ScratchMemory(std::string folder)
    : folder_(std::move(folder)), small_(c10::GetCPUAllocator()) {
    if (!nameless_file(folder_).valid())
        fail(ExitCode::kDisk, "--scratch {}: cannot create a file there: {}", printable(folder_),
             errno_text(errno));
}

Bytes ScratchMemory::left() const {
    const std::optional<DiskSpace> disk = disk_space(folder_);
    if (!disk) refuse(folder_, 0, errno);
    return disk->free;
}

c10::DataPtr ScratchMemory::allocate(size_t bytes) {
    if (bytes < static_cast<size_t>(kLeast.value)) return small_->allocate(bytes);
    const UniqueFd file = nameless_file(folder_);
    if (!file.valid()) refuse(folder_, bytes, errno);
    // The blocks are allocated now; otherwise a full disk would kill the process later.
    const int error_number = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (error_number != 0) refuse(folder_, bytes, error_number);
    void* const begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (begin == MAP_FAILED) refuse(folder_, bytes, errno);
    return {begin, new Mapping{begin, bytes}, &unmap, c10::Device(c10::kCPU)};
}

void ScratchMemory::copy_data(void* to, const void* from, size_t bytes) const {
    std::memcpy(to, from, bytes);
}

ScratchMemory::Scope::Scope(ScratchMemory& memory) : before_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(&memory, kPriority);
}

ScratchMemory::Scope::~Scope() {
    c10::SetCPUAllocator(before_, kPriority);
}

}  // namespace dslaunch::job
