#include "launch/machine/held_name.h"

#include <unistd.h>

#include <future>
#include <memory>
#include <string>

#include "support/catch.h"
#include "support/hang.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using std::chrono::milliseconds;

namespace {

// Returns a name that no other run of this test uses.
std::string own_name(const char* what) {
    return std::string(what) + "." + std::to_string(::getpid());
}

}  // namespace

TEST_CASE("who waits for a name learns of the end of its holder, and one process holds it") {
    // The second name is longer than a socket's address.
    for (const std::string& name : {own_name("test"), own_name(std::string(300, 'x').c_str())}) {
        CAPTURE(name);
        auto held = std::make_unique<HeldName>(name);
        REQUIRE(held->is_held());
        CHECK_FALSE(HeldName(name).is_held());
        CHECK(HeldName(name + "y").is_held());
        auto waited = std::async(std::launch::async, [&] {
            return wait_for_release(name, {milliseconds(test::kHangMs), milliseconds(0), -1});
        });
        CHECK(waited.wait_for(milliseconds(300)) == std::future_status::timeout);
        held.reset();
        CHECK(waited.get());
        CHECK(HeldName(name).is_held());
    }
}

TEST_CASE("a name that nobody holds is waited for as long as is said, or until a signal") {
    const std::string name = own_name("nobody");
    CHECK_FALSE(wait_for_release(name, {milliseconds(150), milliseconds(0), -1}));
    const Pipe signal = make_pipe();
    REQUIRE(write_full(signal.write_end.get(), std::string_view("x")) == 0);
    CHECK_FALSE(wait_for_release(
        name, {milliseconds(test::kHangMs), milliseconds(0), signal.read_end.get()}));
    // It also waits for a holder that comes later.
    auto waited = std::async(std::launch::async, [&] {
        return wait_for_release(name, {milliseconds(test::kHangMs), milliseconds(0), -1});
    });
    CHECK(waited.wait_for(milliseconds(150)) == std::future_status::timeout);
    auto holder = std::make_unique<HeldName>(name);
    CHECK(waited.wait_for(milliseconds(300)) == std::future_status::timeout);
    holder.reset();
    CHECK(waited.get());
    ::setenv(kHeldNameVariable, "a name", 1);
    CHECK(take_held_name_variable() == "a name");
    CHECK(take_held_name_variable().empty());
}
