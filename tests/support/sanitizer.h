// True in builds with the address sanitizer or the thread sanitizer. Their runtimes need address
// space, memory and time themselves, so tests that measure or limit these are not valid there.
#pragma once

namespace dslaunch::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dslaunch::test
