# a small dataset for the first example; the test trains on 75 images
shapes images --count 90
packimg convert images/train -o train.pimg
