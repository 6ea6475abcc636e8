#ifdef __SANITIZE_THREAD__
// Tests fork children that start threads (storage/disk, guardians).
extern "C" const char* __tsan_default_options() {
    return "die_after_fork=0";
}
#endif

// Catch2's main for every test program of ours: v2 is a header with its own main, v3 a library.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) {
    return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
