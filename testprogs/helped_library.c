/* FUNCTION calls back. Built twice, with another name for it at the same place (helped.c). */
void FUNCTION(void (*callback)(void));

void FUNCTION(void (*callback)(void))
{
    for (volatile int i = 0; i < 3; i++)
        callback();
}
