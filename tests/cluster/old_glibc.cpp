// A library loaded before the C library lets a program believe in an old one.
extern "C" const char* gnu_get_libc_version() noexcept {
    return "2.17";
}
