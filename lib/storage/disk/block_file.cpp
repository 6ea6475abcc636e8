#include "storage/disk/block_file.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace dslaunch::storage {

const char* io_direction_name(IoDirection direction) {
    return direction == IoDirection::kRead ? "read" : "write";
}

IoRequest read_request(int64_t offset_bytes, std::span<std::byte> into) {
    return {IoDirection::kRead, offset_bytes, into};
}

IoRequest write_request(int64_t offset_bytes, std::span<const std::byte> from) {
    return {IoDirection::kWrite,
            offset_bytes,
            {const_cast<std::byte*>(from.data()), from.size()}};  // a write does not change it
}

IoTicket::IoTicket(IoTicket&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)), entry_(other.entry_) {}

IoTicket& IoTicket::operator=(IoTicket&& other) noexcept {
    if (this != &other) {
        drop();
        file_ = std::exchange(other.file_, nullptr);
        entry_ = other.entry_;
    }
    return *this;
}

IoTicket::~IoTicket() {
    drop();
}

void IoTicket::drop() {
    if (file_ == nullptr) return;
    DSL_CHECK(std::uncaught_exceptions() > 0, "an I/O request was dropped without wait()");
    std::exchange(file_, nullptr)->abandon(entry_);
}

int64_t IoTicket::wait_for_front(int64_t known_bytes) {
    DSL_CHECK(file_ != nullptr, "wait_for_front() was called after wait()");
    return file_->await_front(entry_, known_bytes);
}

IoResult IoTicket::wait() {
    DSL_CHECK(file_ != nullptr, "wait() was called twice for one I/O request");
    return std::exchange(file_, nullptr)->finish(entry_);
}

IoTicket BlockFile::submit(const IoRequest& request) {
    const auto address = reinterpret_cast<uintptr_t>(request.memory.data());
    const auto length = static_cast<int64_t>(request.memory.size());
    DSL_CHECK(address % kBlockAlignment == 0 && length % kBlockAlignment == 0 &&
                  request.offset_bytes % kBlockAlignment == 0,
              "an I/O request of {} bytes at offset {} for memory at {:#x} is not aligned", length,
              request.offset_bytes, address);
    DSL_CHECK(length > 0 && request.offset_bytes >= 0 &&
                  request.offset_bytes <= capacity().value - length,
              "an I/O request of {} bytes at offset {} is outside the capacity of {} bytes", length,
              request.offset_bytes, capacity().value);
    return {*this, start(request)};
}

}  // namespace dslaunch::storage
