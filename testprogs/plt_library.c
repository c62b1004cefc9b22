/* The library of plt.c. */
unsigned tiny_library_function(unsigned x)
{
    return x * 3 + 1;
}
