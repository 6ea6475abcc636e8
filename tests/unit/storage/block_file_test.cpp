// One set of tests for every engine, then the limits of machines: no io_uring, no right to lock
// memory, files that end early.
#include "storage/disk/block_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <random>
#include <stdexcept>

#include "base/error.h"
#include "disk_test_tools.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/refused_call.h"
#include "support/skip.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using namespace storage;
namespace {

constexpr int64_t kBlock = kBlockAlignment;

bool has_uring() {
    OpenedFile opened({"auto", IoEngine::kAuto, false}, mib(1), {});
    return opened.file().facts().engine == "io_uring";
}

}  // namespace

TEST_CASE("what is written is read again, on every engine, in any order, over several files") {
    for (const EngineCase& engine : kEngines) {
        for (const int files : {1, 3}) {
            INFO(engine.name << " over " << files);
            const Bytes capacity = mib(3);
            OpenedFile opened(engine, capacity, {Bytes{8 * kBlock}, 4, 16}, files);
            BlockFile& file = opened.file();
            AlignedMemory disk(capacity), arena(capacity), outside(kib(64));
            if (files == 3) file.register_memory(arena.all());
            std::mt19937 random(7);
            const int64_t blocks = capacity.value / kBlock;
            for (int round = 0; round < 300; ++round) {
                // Several at once, on separate ranges. Every third uses memory that is not
                // registered.
                const int64_t share = blocks / 8;
                std::vector<IoTicket> tickets;
                std::vector<IoRequest> requests;
                for (int64_t i = 0; i < 8; ++i) {
                    const int64_t length = 1 + static_cast<int64_t>(random() % 30);
                    const int64_t at =
                        i * share + static_cast<int64_t>(random() % (share - length + 1));
                    auto memory = arena.part(at * kBlock, length * kBlock);
                    if (i == 3) memory = outside.part(0, std::min<int64_t>(length, 16) * kBlock);
                    if (random() % 2 == 0) {
                        fill(memory, random());
                        std::copy(memory.begin(), memory.end(), disk.part(at * kBlock, 1).data());
                        requests.push_back(write_request(at * kBlock, memory));
                    } else {
                        std::fill(memory.begin(), memory.end(), std::byte{0xEE});
                        requests.push_back(read_request(at * kBlock, memory));
                    }
                    tickets.push_back(file.submit(requests.back()));
                    if (i % 2 == 0) file.progress();
                }
                std::reverse(tickets.begin(), tickets.end());
                std::reverse(requests.begin(), requests.end());
                for (size_t i = 0; i < tickets.size(); ++i) {
                    const auto length = static_cast<int64_t>(requests[i].memory.size());
                    REQUIRE(tickets[i].wait().has_moved(length));
                    const auto expected = disk.part(requests[i].offset_bytes, length);
                    REQUIRE(
                        std::equal(expected.begin(), expected.end(), requests[i].memory.begin()));
                }
            }
        }
    }
}

TEST_CASE("a request that is watched tells what has come, and those bytes are there") {
    constexpr int kRequests = 20;
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        const Bytes length = mib(2);
        OpenedFile opened(engine, length, {Bytes{8 * kBlock}, 4, 16});
        AlignedMemory written(length), read(length);
        fill(written.all(), 5);
        REQUIRE(
            opened.file().submit(write_request(0, written.all())).wait().has_moved(length.value));
        int looks = 0;
        for (int request = 0; request < kRequests; ++request) {
            std::fill(read.all().begin(), read.all().end(), std::byte{0});
            IoTicket ticket = opened.file().submit(read_request(0, read.all()));
            for (int64_t known = 0; known < length.value; ++looks) {
                const int64_t front = ticket.wait_for_front(known);
                REQUIRE(front > known);
                const auto begin = static_cast<ptrdiff_t>(known);
                const auto end = static_cast<ptrdiff_t>(front);
                REQUIRE(std::equal(written.all().begin() + begin, written.all().begin() + end,
                                   read.all().begin() + begin));
                known = front;
            }
            CHECK(ticket.wait_for_front(length.value) == length.value);
            CHECK(ticket.wait().has_moved(length.value));
        }
        // With 64 pieces, 4 in flight at once, some are seen to come before others.
        if (!engine.memory) CHECK(looks > kRequests);
    }
}

TEST_CASE("a block file says where a byte lies and what it became") {
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        OpenedFile opened(engine, mib(1), {kib(64), 3, 4}, 2);
        CHECK(opened.file().capacity() == mib(1));
        CHECK(opened.file().facts().engine == engine.name);
        CHECK(opened.file().facts().depth == 3);
        CHECK(opened.file().facts().block == kib(64));
        CHECK_FALSE(opened.file().facts().has_registered_memory);
        if (engine.memory) continue;
        CHECK(opened.file().path_at(0) == opened.backing().files[0].path);
        CHECK(opened.file().path_at(kib(16).value) == opened.backing().files[1].path);
        CHECK(opened.backing().files[0].is_direct);
    }
}

TEST_CASE("the thread engine has no more threads than it may have") {
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        QueueLimits limits{Bytes{4096}, 8, 8};
        limits.threads_max = 2;
        OpenedFile opened(engine, Bytes{64 * 4096}, limits);
        const bool threads = std::string(engine.name) == "threads";
        CHECK(opened.file().facts().depth == (threads ? 2 : 8));
        AlignedMemory memory(Bytes{64 * 4096}), back(Bytes{64 * 4096});
        fill(memory.all(), 5);
        CHECK(opened.file().submit(write_request(0, memory.all())).wait().has_moved(64 * 4096));
        CHECK(opened.file().submit(read_request(0, back.all())).wait().has_moved(64 * 4096));
        CHECK(std::ranges::equal(memory.all(), back.all()));
    }
}

TEST_CASE("a file that ends early gives a short read, one that may not grow an error") {
    for (const EngineCase& engine : kEngines) {
        if (engine.memory) continue;
        INFO(engine.name);
        AlignedMemory memory(Bytes{64 * kBlock});
        {
            OpenedFile opened(engine, Bytes{64 * kBlock}, {Bytes{8 * kBlock}, 4, 4});
            REQUIRE(
                opened.file().submit(write_request(0, memory.all())).wait().has_moved(64 * kBlock));
            REQUIRE(::ftruncate(opened.backing().files[0].fd.get(), 20 * kBlock) == 0);
            const IoResult read = opened.file().submit(read_request(0, memory.all())).wait();
            CHECK(read.error_number == 0);
            CHECK(read.moved_bytes < 64 * kBlock);
            CHECK(read.failed_bytes >= 20 * kBlock);
            CHECK_FALSE(read.has_moved(64 * kBlock));
        }
        const ChildResult child = in_child([&]() -> std::string {
            OpenedFile limited(engine, Bytes{64 * kBlock}, {Bytes{8 * kBlock}, 1, 4});
            if (::ftruncate(limited.backing().files[0].fd.get(), 0) != 0) return "ftruncate";
            ::signal(SIGXFSZ, SIG_IGN);
            const rlimit limit{20 * kBlock, 20 * kBlock};
            if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
            const IoResult write = limited.file().submit(write_request(0, memory.all())).wait();
            return fmt::format("{} {} {}", write.error_number, write.moved_bytes / kBlock,
                               write.failed_bytes / kBlock);
        });
        INFO(child.err);
        CHECK(child.text == fmt::format("{} 20 20", -EFBIG));
    }
}

TEST_CASE("a ticket that nobody waits for is a bug, unless an exception passes") {
    for (const EngineCase& engine : kEngines) {
        INFO(engine.name);
        const ChildResult forgotten = in_child([&]() -> std::string {
            OpenedFile opened(engine, mib(4), {});
            AlignedMemory memory(mib(4));
            { const IoTicket ticket = opened.file().submit(read_request(0, memory.all())); }
            return "not noticed";
        });
        CHECK_FALSE(forgotten.ended_well);
        CHECK(forgotten.err.find("was dropped without wait()") != std::string::npos);

        // A request for which nobody waited still writes, so each has memory of its own.
        constexpr size_t kRounds = 3;
        const auto bytes = static_cast<size_t>(mib(4).value);
        AlignedMemory left(mib(4 * kRounds));
        AlignedMemory memory(mib(4));
        OpenedFile opened(engine, mib(4), {kib(64), 2, 4});
        for (size_t round = 0; round < kRounds; ++round) {
            try {
                const IoTicket ticket =
                    opened.file().submit(read_request(0, left.all().subspan(round * bytes, bytes)));
                throw std::runtime_error("passing");
            } catch (const std::runtime_error&) {
            }
        }
        CHECK(opened.file().submit(read_request(0, memory.all())).wait().has_moved(mib(4).value));
    }
}

TEST_CASE("requests that are not aligned or reach too far are bugs") {
    const EngineCase engine = kEngines[0];
    AlignedMemory memory(Bytes{4 * kBlock});
    const IoRequest bad[] = {read_request(512, memory.part(0, kBlock)),
                             read_request(0, memory.part(512, kBlock)),
                             read_request(0, memory.part(0, 512)),
                             read_request(0, memory.part(0, 0)),
                             read_request(kBlock, memory.part(0, 4 * kBlock)),
                             read_request(-kBlock, memory.part(0, kBlock))};
    for (const IoRequest& request : bad) {
        const ChildResult child = in_child([&]() -> std::string {
            OpenedFile opened(engine, Bytes{4 * kBlock}, {});
            static_cast<void>(opened.file().submit(request).wait());
            return "not noticed";
        });
        INFO(request.offset_bytes << " " << request.memory.size());
        CHECK_FALSE(child.ended_well);
    }
}

TEST_CASE("where io_uring is forbidden threads take over, which is said once") {
    for (const int error_number : {EPERM, ENOSYS}) {
        const ChildResult child = in_child([&]() -> std::string {
            if (!refuse_call(SYS_io_uring_setup, error_number)) return "cannot forbid";
            OpenedFile opened({"auto", IoEngine::kAuto, false}, mib(1), {});
            AlignedMemory memory(mib(1));
            fill(memory.all(), 3);
            if (!opened.file()
                     .submit(write_request(0, memory.all()))
                     .wait()
                     .has_moved(mib(1).value))
                return "write";
            if (!opened.file().submit(read_request(0, memory.all())).wait().has_moved(mib(1).value))
                return "read";
            try {
                OpenedFile named({"io_uring", IoEngine::kUring, false}, mib(1), {});
                return "the engine asked for by name was replaced";
            } catch (const Error& error) {
                if (error.code() != ExitCode::kSetup) return error.what();
                const std::string text = error.what();
                if (text.find("set the I/O engine to auto or threads") == text.npos) return text;
            }
            return opened.file().facts().engine;
        });
        CHECK(child.text == "threads");
        CHECK(count_of(child.err, "io_uring cannot be used") == 1);
        CHECK(child.err.find(errno_text(error_number)) != std::string::npos);
    }
}

TEST_CASE("memory that may not be locked is used unregistered, which is said once") {
    if (!has_uring()) return report_skipped("registered memory", "this machine allows no io_uring");
    rlimit here{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &here) == 0);
    for (const bool allowed : {true, false}) {
        if (allowed && here.rlim_cur < 6 << 20) {
            report_skipped("registered memory", "RLIMIT_MEMLOCK is below 6 MiB (ulimit -l)");
            continue;
        }
        const ChildResult child = in_child([&]() -> std::string {
            TemporaryFolder folder;
            if (::chmod(folder.path().c_str(), 0777) != 0) return "chmod";
            const rlimit limit{1 << 20, 1 << 20};
            if (!allowed && ::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "setrlimit";
            // Linux counts locked memory by user, and gives it back some time after the process has
            // ended.
            const uid_t user = allowed ? 65533 : 65534;
            if (::geteuid() == 0 && ::setresuid(user, user, user) != 0) return "setresuid";
            const SwapFiles swap(place_in(folder), mib(4));
            const auto file = open_block_file(swap.files(), IoEngine::kUring, {});
            AlignedMemory memory(mib(4));
            file->register_memory(memory.all());
            if (file->facts().has_registered_memory != allowed) return "wrong";
            fill(memory.all(), 5);
            if (!file->submit(write_request(0, memory.all())).wait().has_moved(mib(4).value))
                return "write";
            AlignedMemory other(mib(4));
            if (!file->submit(read_request(0, other.all())).wait().has_moved(mib(4).value))
                return "read";
            const auto expected = memory.all();
            return std::equal(expected.begin(), expected.end(), other.all().begin()) ? "" : "bytes";
        });
        INFO(child.err);
        CHECK(child.text == "");
        CHECK(count_of(child.err, "cannot be registered") == (allowed ? 0 : 1));
        if (!allowed) {
            CHECK(child.err.find("4.0 MiB of memory") != std::string::npos);
            CHECK(child.err.find("RLIMIT_MEMLOCK is 1.0 MiB") != std::string::npos);
        }
    }
}

TEST_CASE("engines have names, and others are refused") {
    for (const IoEngine engine : {IoEngine::kAuto, IoEngine::kUring, IoEngine::kThreads})
        CHECK(parse_io_engine(io_engine_name(engine)) == engine);
    CHECK_THROWS_WITH(parse_io_engine("libaio"), Catch::Contains("auto, io_uring or threads"));
}

}  // namespace dslaunch::test
