# A cluster of one's own: nothing is made, what is said about it is checked, and it goes
# on in the same words as that of a cluster that is made here.
