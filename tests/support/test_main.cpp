#ifdef __SANITIZE_THREAD__
// Lets children of tests start threads after a fork (storage/disk, guardians).
extern "C" const char* __tsan_default_options() {
    return "die_after_fork=0";
}
#endif

// Catch2's main for all our test programs. In v2 it is in a header, in v3 in a library.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) {
    return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
