#include "runtime/comm/host/host_group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "support/catch.h"
#include "support/hang.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::test;
using namespace std::chrono_literals;

namespace {

// Runs BODY on each local rank. A rank is a thread, with its own group over one arena.
void run_ranks(const Arena& arena, Duration time_limit,
               const std::function<void(HostGroup& group, int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < arena.layout().local_world_size(); ++rank) {
        threads.emplace_back([&, rank] {
            HostGroup group(arena, {.local_rank = rank, .time_limit = time_limit});
            body(group, rank);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

std::string letters(size_t length, int rank) {
    std::string text(length, ' ');
    for (size_t i = 0; i < length; ++i)
        text[i] = static_cast<char>('a' + (i * 7 + static_cast<size_t>(rank)) % 26);
    return text;
}

}  // namespace

TEST_CASE("What was written before a post is seen after its await, over many generations") {
    for (const int ranks : {1, 2, 3, 5, 8}) {
        ArenaLayout layout(ranks);
        const SliceId slice = layout.add_per_rank("value", {64});
        const SignalId written = layout.add_signal("written");
        const SignalId read = layout.add_signal("read");
        const Arena arena = Arena::anonymous(layout);
        std::atomic<int> wrong{0};
        run_ranks(arena, kHangTime, [&](HostGroup& group, int rank) {
            for (uint32_t generation = 1; generation <= 200; ++generation) {
                group.await_all(read, generation - 1);
                const uint32_t mine = generation * 100 + static_cast<uint32_t>(rank);
                std::memcpy(arena.of_rank(slice, rank).data(), &mine, sizeof mine);
                group.post(written, generation);
                for (int peer = 0; peer < ranks; ++peer) {
                    group.await(written, peer, generation);
                    uint32_t theirs = 0;
                    std::memcpy(&theirs, arena.of_rank(slice, peer).data(), sizeof theirs);
                    if (theirs != generation * 100 + static_cast<uint32_t>(peer)) ++wrong;
                }
                group.post(read, generation);
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Generations may wrap around") {
    ArenaLayout layout(1);
    const SignalId signal = layout.add_signal("signal");
    const Arena arena = Arena::anonymous(layout);
    HostGroup group(arena, {});
    group.post(signal, 0x7fffffff);
    group.post(signal, 0xfffffffe);
    CHECK(group.is_posted(signal, 0, 0xfffffffe));
    CHECK_FALSE(group.is_posted(signal, 0, 1));
    group.post(signal, 1);
    CHECK(group.is_posted(signal, 0, 0xffffffff));
    CHECK(group.is_posted(signal, 0, 1));
}

TEST_CASE("Strings of any length are gathered by local rank, in repeated and mixed calls") {
    const std::vector<size_t> lengths = {0,         1,      100, 32 * 1024 - 9, 32 * 1024 - 8,
                                         32 * 1024, 200'000};
    for (const int ranks : {1, 2, 5}) {
        ArenaLayout layout(ranks);
        const Arena arena = Arena::anonymous(layout);
        std::atomic<int> wrong{0};
        run_ranks(arena, kHangTime, [&](HostGroup& group, int rank) {
            for (size_t round = 0; round < lengths.size(); ++round) {
                const auto length_of = [&](int r) {
                    return lengths[(round + static_cast<size_t>(r)) % lengths.size()];
                };
                const std::vector<std::string> all =
                    group.all_gather(letters(length_of(rank), rank));
                for (int peer = 0; peer < ranks; ++peer) {
                    if (all[peer] != letters(length_of(peer), peer)) ++wrong;
                }
                const int root = static_cast<int>(round) % ranks;
                std::string text = letters(lengths[round], rank);
                group.broadcast(std::as_writable_bytes(std::span(text)), root);
                if (text != letters(lengths[round], root)) ++wrong;
                group.barrier();
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Nobody leaves a barrier before all have come") {
    ArenaLayout layout(4);
    const Arena arena = Arena::anonymous(layout);
    std::atomic<int> inside{0};
    std::atomic<int> wrong{0};
    run_ranks(arena, kHangTime, [&](HostGroup& group, int) {
        for (int round = 1; round <= 100; ++round) {
            ++inside;
            group.barrier();
            if (inside < 4 * round) ++wrong;
            group.barrier();
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("Two groups at once do not meet") {
    ArenaLayout layout(2);
    const Arena first = Arena::anonymous(layout);
    const Arena second = Arena::anonymous(layout);
    std::atomic<int> wrong{0};
    const auto talk = [&](const char* word) {
        return [&wrong, word](HostGroup& group, int) {
            for (int round = 0; round < 200; ++round) {
                for (const std::string& text : group.all_gather(word))
                    if (text != word) ++wrong;
            }
        };
    };
    std::thread other([&] { run_ranks(first, kHangTime, talk("first")); });
    run_ranks(second, kHangTime, talk("second"));
    other.join();
    CHECK(wrong == 0);
}

TEST_CASE(
    "A wait that lasts too long names rank and signal, and the others fail with the same words") {
    ArenaLayout layout(3);
    const SignalId signal = layout.add_signal("bucket 4 reduced");
    const Arena arena = Arena::anonymous(layout);
    std::vector<Error> errors(3, Error(ExitCode::kOk, ""));
    // All ranks enter, with time to start. A rank that enters again waits for nobody.
    run_ranks(arena, kHangTime, [](HostGroup&, int) {});
    run_ranks(arena, 50ms, [&](HostGroup& group, int rank) {
        if (rank == 2) return;  // never posts
        group.post(signal, 1);
        try {
            group.await(signal, 2, 1);
        } catch (const Error& error) {
            errors[rank] = error;
        }
    });
    std::vector<ExitCode> codes = {errors[0].code(), errors[1].code()};
    CHECK(std::count(codes.begin(), codes.end(), ExitCode::kHang) >= 1);
    for (const Error& error : {errors[0], errors[1]}) {
        CHECK((error.code() == ExitCode::kHang || error.code() == ExitCode::kPeerLost));
        CHECK(std::string(error.what()).find("rank 2 host localhost") == 0);
        CHECK(std::string(error.what()).find("'bucket 4 reduced'") != std::string::npos);
    }
}

TEST_CASE("Poison wakes those who sleep, and the first text stays") {
    ArenaLayout layout(3);
    const SignalId signal = layout.add_signal("signal");
    const Arena arena = Arena::anonymous(layout);
    std::atomic<int> told{0};
    run_ranks(arena, kHangTime, [&](HostGroup& group, int rank) {
        if (rank == 0) {
            std::this_thread::sleep_for(100ms);
            group.poison("rank 0 ran out of memory");
            group.poison("a later failure");
            return;
        }
        try {
            group.await(signal, rank == 1 ? 0 : 1, 1);
        } catch (const Error& error) {
            if (error.code() == ExitCode::kPeerLost &&
                std::string(error.what()) == "rank 0 ran out of memory")
                ++told;
        }
    });
    CHECK(told == 2);
}

TEST_CASE("What was posted before the poison is still read, the rest is refused") {
    ArenaLayout layout(2);
    const SignalId signal = layout.add_signal("signal");
    const Arena arena = Arena::anonymous(layout);
    run_ranks(arena, kHangTime, [&](HostGroup& group, int) {
        group.post(signal, 1);
        group.barrier();
    });
    std::atomic<int> refused{0};
    run_ranks(arena, kHangTime, [&](HostGroup& group, int rank) {
        if (rank == 0) group.poison(std::string(5000, 'x'));
        while (!group.poisoned()) std::this_thread::yield();
        group.await_all(signal, 1);
        try {
            group.await_all(signal, 2);
        } catch (const Error& error) {
            refused += error.what() == std::string(1024, 'x');
        }
    });
    CHECK(refused == 2);
}

TEST_CASE("A rank that never enters is a time-out that names it") {
    ArenaLayout layout(2);
    const Arena arena = Arena::anonymous(layout);
    try {
        HostGroup group(arena,
                        {.local_rank = 1, .ranks = {4, 5}, .host = "n2", .time_limit = 30ms});
        FAIL("entered");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kHang);
        CHECK(std::string(error.what()).find("rank 4 host n2") == 0);
    }
}

TEST_CASE("A killed process is named by those who wait for it, zombie or not") {
    ArenaLayout layout(3);
    const SignalId signal = layout.add_signal("signal");
    const Arena arena = Arena::anonymous(layout);
    std::vector<pid_t> children;
    for (int rank = 1; rank < 3; ++rank) {
        const pid_t child = ::fork();
        if (child == 0) {
            try {
                HostGroup group(arena, {.local_rank = rank, .time_limit = kHangTime});
                group.barrier();
                if (rank == 1) ::pause();   // will be killed
                group.await(signal, 1, 1);  // learns of it by itself or by the poison
                ::_exit(1);
            } catch (const Error& error) {
                const bool named = std::string(error.what()).find("rank 1 host") == 0;
                ::_exit(error.code() == ExitCode::kPeerLost && named ? 0 : 2);
            }
        }
        children.push_back(child);
    }
    HostGroup group(arena, {.local_rank = 0, .time_limit = kHangTime});
    group.barrier();
    ::kill(children[0], SIGKILL);  // a zombie until the end of the test
    try {
        group.await(signal, 1, 1);
        FAIL("the killed rank posted");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kPeerLost);
        CHECK(std::string(error.what()).find("rank 1 host localhost") == 0);
    }
    int status = 0;
    REQUIRE(::waitpid(children[1], &status, 0) == children[1]);
    CHECK(status == 0);
    ::waitpid(children[0], &status, 0);
}
