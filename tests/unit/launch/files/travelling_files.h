// Files that a test sends from one host to another. Their lengths are near the lengths of pieces
// and chunks, their content never repeats, and their mode and time must arrive too.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <random>
#include <string>

#include "launch/protocol/push_messages.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch::test {

inline constexpr size_t kWholeChunk = static_cast<size_t>(launch::kPushChunkBytes);
inline constexpr size_t kTravelLengths[] = {0,
                                            1,
                                            static_cast<size_t>(launch::kPushPieceBytes),
                                            kWholeChunk - 1,
                                            kWholeChunk,
                                            kWholeChunk + 1,
                                            5 * kWholeChunk + 12345};

inline std::string random_bytes(size_t length, unsigned seed) {
    std::mt19937 engine(seed);
    std::string bytes(length, '\0');
    for (char& byte : bytes) byte = static_cast<char>(engine());
    return bytes;
}

// Makes a file of kTravelLengths[INDEX] bytes that is years old.
inline void make_old_file(const std::string& path, size_t index, mode_t mode) {
    write_file(path, random_bytes(kTravelLengths[index], static_cast<unsigned>(index)));
    ::chmod(path.c_str(), mode);
    const timespec times[2] = {{1'000'000'000, 5}, {1'000'000'000, 5}};
    ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

// Checks that the file at TO is equal to the file that make_old_file() made at FROM.
inline void check_travelled(const std::string& from, const std::string& to) {
    INFO(to);
    struct stat there {
    }, here{};
    REQUIRE(::stat(from.c_str(), &there) == 0);
    REQUIRE(::stat(to.c_str(), &here) == 0);
    CHECK(content_of(to) == content_of(from));
    CHECK(here.st_mode == there.st_mode);
    CHECK(here.st_mtim.tv_sec == 1'000'000'000);
    CHECK(here.st_mtim.tv_nsec == 5);
}

}  // namespace dslaunch::test
