#include "base/machine/memory_shortage.h"

#include <new>
#include <stdexcept>
#include <system_error>

#include "support/catch.h"

namespace dslaunch {
namespace {

TEST_CASE("a want of memory is known by its type or by LibTorch's words") {
    CHECK(is_memory_shortage(std::bad_alloc()));
    CHECK(is_memory_shortage(std::system_error(EAGAIN, std::generic_category())));
    CHECK(is_memory_shortage(std::system_error(ENOMEM, std::generic_category())));
    CHECK(is_memory_shortage(std::runtime_error(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 262144 bytes. Error code 12 (Cannot allocate memory)")));
    CHECK(is_memory_shortage(std::runtime_error(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB")));
}

TEST_CASE("other failures are no want of memory") {
    CHECK_FALSE(is_memory_shortage(std::system_error(ENOENT, std::generic_category())));
    CHECK_FALSE(is_memory_shortage(std::runtime_error("index out of range in self")));
    CHECK_FALSE(is_memory_shortage(std::logic_error("the memory format is channels last")));
}

}  // namespace
}  // namespace dslaunch
